"""The lab's report as a Markdown page, with its figures in files beside it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from unspool.lab.results import Finding
from unspool.plots.canvas import canvas

MARKS = {
    "reproduced": "✔",
    "mixed": "≈",
    "not reproduced": "✘",
    "not run": "–",
    "no verdict (quick run)": "–",
}
FIGURES = "img/lab"
HEADER = """# The claims, measured again

Each claim of the papers and lectures behind this library is a small experiment in
[src/unspool/lab/claims](../src/unspool/lab/claims/__init__.py), with what is measured and the criterion by
which it counts as reproduced. Some criteria and set-ups were changed after a first result; the
[lab log](lab-log.md) lists them. This page is written by

    unspool lab report --from docs/lab.json --markdown docs/lab.md

from numbers that `unspool lab run --all` has measured and `unspool lab report --json` has written. A claim is
reproduced (✔) if every part of its criterion holds with every seed, not reproduced (✘) if no part holds with
any seed, and mixed (≈) otherwise. All experiments are small: artificial languages, the built-in models, and
models that train for seconds. Results may differ for larger models.
"""


def markdown_page(findings: Sequence[Finding]) -> str:
    """Return the report as Markdown; `write_figures` writes its figures."""
    rows = [
        f"| {MARKS[it.verdict]} | [{_cell(it.claim.statement)}](#{it.claim.name.replace('_', '-')}) | "
        f"{_cell(it.claim.source)} |"
        for it in findings
    ]
    table = "\n".join(["| | claim | source |", "|---|---|---|", *rows])
    summary = f"**{len(findings)} claims: {_verdict_counts(findings)}.** {seeds_summary(findings)}"
    return "\n".join([HEADER, summary, "", table, "", *map(_markdown_section, findings)])


def write_figures(findings: Sequence[Finding], page: Path) -> None:
    """Write every figure that the Markdown page shows."""
    for it in findings:
        if it.results:
            draw_finding(it, page.parent / FIGURES / f"{it.claim.name}.svg")


def draw_finding(finding: Finding, path: Path) -> None:
    """Write the figure of a claim to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with canvas(path, *finding.claim.size) as figure:
        finding.claim.draw(figure, finding.runs)


def figure_svg(finding: Finding) -> str:
    """Return the figure of a claim as an <svg> element."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        draw_finding(finding, path)
        svg = path.read_text(encoding="utf-8")
    return svg[svg.index("<svg") :]


def seeds_summary(findings: Sequence[Finding]) -> str:
    """List the seeds and the time that the measurements took."""
    seeds = sorted({result.seed for it in findings for result in it.results})
    seconds = sum(result.seconds for it in findings for result in it.results)
    if not seeds:
        return "Nothing has been run yet."
    return f"Seeds {', '.join(map(str, seeds))}; {seconds / 60:.0f} minutes of one core in all."


def _verdict_counts(findings: Sequence[Finding]) -> str:
    counts: Counter[str] = Counter(it.verdict for it in findings)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in MARKS if counts[verdict])


def _markdown_section(it: Finding) -> str:
    claim, title = it.claim, it.claim.name.replace("_", " ")
    lines = [f"## {title}", "", f"**{claim.statement}** *{claim.source}.*", ""]
    lines += [f"{MARKS[it.verdict]} **{it.verdict}**. {claim.measured}", ""]
    lines += [claim.limits, ""] if claim.limits else []
    lines += ["| counts as reproduced if | held |", "|---|---|"]
    lines += [f"| {_cell(words)} | {held} of {seeds} seeds |" for words, held, seeds in it.parts]
    if it.results:
        lines += ["", f"![{title}: {_cell(claim.statement)}]({FIGURES}/{claim.name}.svg)", ""]
        lines += ["| measured | mean ± standard deviation | least to most |", "|---|---|---|"]
        lines += [
            f"| {_cell(name)} | {each} | {each.least:.4g} to {each.most:.4g} |"
            for name, each in it.spreads.items()
        ]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
