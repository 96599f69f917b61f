"""The lab's report as a Markdown page, with its figures in files beside it."""

from __future__ import annotations

import tempfile
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from unspool.lab.claim import Check, Claim
from unspool.lab.registry import latest, registered
from unspool.lab.results import Finding
from unspool.plots.canvas import canvas

MARKS = {
    "supported": "✔",
    "contradicted": "✘",
    "cannot tell": "?",
    "holds": "✔",
    "fails": "✘",
    "incomplete": "–",
    "not run": "–",
    "quick run": "–",
}
FIGURES = "img/lab"
REGISTER = "../src/unspool/lab/registrations.json"
HEADER = f"""# The claims, measured again

Each claim of the papers and lectures behind this library is a small experiment in
[src/unspool/lab/claims](../src/unspool/lab/claims/__init__.py). A claim registered its primary effect, the
smallest effect that matters, the number of seeds and what would contradict it before the runs of this page;
all versions are in the [register]({REGISTER}). Results of earlier
versions with seeds 1 to 3 were known when these plans were written, and a quick run (tiny sizes, seed 101)
had been seen, so the plans are not blind. The full runs of this page have new seeds, 101 and on. If later
code gives other numbers in a quick run than the code that measured, the claim is stale: `make check` names
it, and `unspool lab run --stale --from docs/lab.json` measures it again.

- **supported** (✔): the 95 % interval of the effect lies above the smallest effect that matters
- **contradicted** (✘): the interval lies below the registered limit, 0 unless the claim says otherwise
- **cannot tell** (?): neither
- **not run** (–): not measured yet under the registered plan

Intervals come from seeds, and from prompts or texts within seeds
([inference.py](../src/unspool/lab/inference.py)). There is one test per claim and no correction for their
number: an effect exactly as large as matters is called supported in about one of 40 cases. Secondary
quantities have no verdict; their t intervals over seeds can leave the range of a share. A verdict is about
the models of its experiment. Most are small: artificial languages, built-in models, and models that train for
seconds. Real models are SmolLM2 (135 million parameters), models of stories and a translator;
[inputs.py](../src/unspool/lab/inputs.py) says what to put into the folder DATA. This page is written by

    unspool lab run --all --jobs 2 --data DATA
    unspool lab report --json > docs/lab.json
    unspool lab report --from docs/lab.json --markdown docs/lab.md
"""


def markdown_page(findings: Sequence[Finding]) -> str:
    """Return the report as Markdown; `write_figures` writes its figures."""
    claims = [it for it in findings if not isinstance(it.claim, Check)]
    checks = [it for it in findings if isinstance(it.claim, Check)]
    parts = [HEADER]
    if claims:
        parts += [f"## Claims\n\n{len(claims)} claims: {_verdict_counts(claims)}. {seeds_summary(claims)}\n"]
        parts += ["| | claim | effect (95 % interval) | matters from |\n|---|---|---|---|"]
        parts += [
            f"| {MARKS[it.verdict]} {it.verdict} | {_link(it)} | {it.effect or '–'} | {it.claim.matters:g} |"
            for it in claims
            if isinstance(it.claim, Claim)
        ]
    if checks:
        parts += [f"\n## Checks of the code\n\n{len(checks)} checks: {_verdict_counts(checks)}. They are "]
        parts[-1] += "theorems and identities: they confirm the code, not the world.\n"
        parts += ["| | check | source |\n|---|---|---|"]
        parts += [
            f"| {MARKS[it.verdict]} {it.verdict} | {_link(it)} | {_cell(it.claim.source)} |" for it in checks
        ]
    return "\n".join([*parts, "", *map(_markdown_section, findings)])


def write_figures(findings: Sequence[Finding], page: Path) -> None:
    for it in findings:
        if it.current:
            draw_finding(it, page.parent / FIGURES / f"{it.claim.name}.svg")


def draw_finding(finding: Finding, path: Path) -> None:
    """Write the figure of a claim to a file, with the statement and the effect as its title."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [finding.claim.statement]
    if finding.effect:
        words += [f"{finding.verdict}: {effect_line(finding)}"]
    title = [line for text in words for line in textwrap.wrap(text, 102)]
    with canvas(path, 6.4, 3.0) as figure:
        finding.claim.draw(figure, finding.runs)
        figure.set_figheight(figure.get_figheight() + 0.15 * len(title))
        figure.suptitle("\n".join(title), fontsize=8)


def figure_svg(finding: Finding) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        draw_finding(finding, path)
        svg = path.read_text(encoding="utf-8")
    return svg[svg.index("<svg") :]


def effect_line(finding: Finding) -> str:
    claim, effect = finding.claim, finding.effect
    assert isinstance(claim, Claim)
    assert effect is not None
    each = "" if claim.unit == "seed" else f", {effect.units} numbers ({claim.unit}s)"
    return f"{claim.primary}: {effect}; matters from {claim.matters:g}; {effect.seeds} seeds{each}"


def seeds_summary(findings: Sequence[Finding]) -> str:
    seconds = sum(result.seconds for it in findings for result in it.current)
    if not seconds:
        return "Nothing has been run yet."
    return f"{sum(len(it.current) for it in findings)} measurements, {seconds / 60:.0f} minutes of one core."


def _verdict_counts(findings: Sequence[Finding]) -> str:
    counts: Counter[str] = Counter(it.verdict for it in findings)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in MARKS if counts[verdict])


def _markdown_section(it: Finding) -> str:
    claim, title = it.claim, it.claim.name.replace("_", " ")
    source = claim.source + "." * (claim.source[-1] not in "?.")
    lines = [f"## {title}", "", f"**{claim.statement}** *{source}*", "", claim.measured, ""]
    lines += [claim.limits, ""] if claim.limits else []
    if isinstance(claim, Claim):
        lines += [f"Primary effect: {claim.primary}. {_plan(claim)}", ""]
        result = f": {it.effect}, {it.effect.seeds} seeds" if it.effect else ""
        lines += [f"{MARKS[it.verdict]} **{it.verdict}**{result}. {_registration(it)}"]
    else:
        lines += [f"{MARKS[it.verdict]} **{it.verdict}**. {_registration(it)}", ""]
        lines += ["| holds if | held |", "|---|---|"]
        lines += [f"| {_cell(words)} | {held} of {seeds} seeds |" for words, held, seeds in it.parts]
    lines += ["", f"After the result: {claim.comment}"] if claim.comment else []
    if it.current:
        lines += ["", f"![{title}: {_cell(claim.statement)}]({FIGURES}/{claim.name}.svg)", ""]
        lines += ["| measured | mean (95 % interval over seeds) | least to most |", "|---|---|---|"]
        lines += [
            f"| {_cell(name)} | {each} | {each.least:.4g} to {each.most:.4g} |"
            for name, each in it.spreads.items()
        ]
    return "\n".join([*lines, ""])


def _plan(claim: Claim) -> str:
    effect, deviation = claim.assumed
    each = f"of {claim.crossed} common {claim.unit}s" if claim.crossed else "of seeds"
    return (
        f"It matters from {claim.matters:g}; an interval below {claim.contradicted_below:g} contradicts the "
        f"claim. {claim.seeds} seeds: the power is {claim.power:.2f} for an effect of {effect:g} with a "
        f"standard deviation {each} of {deviation:g}."
    )


def _registration(it: Finding) -> str:
    version = latest(it.claim)
    if version is None:
        return "Not registered."
    number, versions = version["version"], registered()[it.claim.name]
    text = f"Version {number} of the plan, registered {version['date']}, hash {version['hash']}."
    if number > 1:
        text += f" Changed since version {number - 1}: {versions[-1]['why']}"
    if it.current:
        text += f" Code {it.current[0].code}."
        text += f" Read: {it.current[0].data}." * bool(it.current[0].data)
    return text


def _link(it: Finding) -> str:
    return f"[{_cell(it.claim.statement)}](#{it.claim.name.replace('_', '-')})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
