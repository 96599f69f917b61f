"""The lab's report as HTML (one file with its figures inside) or Markdown (figures in files beside it)."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from unspool.lab.results import Finding
from unspool.plots.canvas import canvas

COLOURS = {"reproduced": "#1e8449", "mixed": "#b9770e", "not reproduced": "#c0392b", "not run": "#6b6b70"}
MARKS = {"reproduced": "✔", "mixed": "≈", "not reproduced": "✘", "not run": "–"}
FIGURES = "img/lab"
STYLE = """
:root { --ink: #1d1d1f; --soft: #6b6b70; --line: #d8d8dc; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
a { color: inherit; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .3rem; }
.soft { color: var(--soft); font-size: 13px; }
.verdict { font-weight: 600; white-space: nowrap; }
table { border-collapse: collapse; margin: .6rem 0; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
figure { margin: .6rem 0; } svg { max-width: 100%; height: auto; }
"""
CRITERIA = (
    "Some criteria and set-ups were changed after a first result; the lab log (docs/lab-log.md) lists them."
)
LINKED_CRITERIA = CRITERIA.replace("lab log (docs/lab-log.md)", "[lab log](lab-log.md)")
VERDICTS = (
    "A claim is reproduced{} if every part of its criterion holds with every seed, not reproduced{} if no "
    "part holds with any seed, and mixed{} otherwise."
)
HEADER = f"""# The claims, measured again

Each claim of the papers and lectures behind this library is a small experiment: one file in
[src/unspool/lab/claims](../src/unspool/lab/claims/__init__.py), with what is measured and the criterion by
which it counts as reproduced. {LINKED_CRITERIA} This page is written by

    unspool lab report --from docs/lab.json --markdown docs/lab.md

from numbers that `unspool lab run --all` has measured and `unspool lab report --json` has written.
{VERDICTS.format(" (✔)", " (✘)", " (≈)")} All experiments are small: artificial languages, the built-in
models, and models that train for seconds. Results may differ for larger models.
"""


def html_page(findings: Sequence[Finding], *, quick: bool = False) -> str:
    """Return the report as one HTML file without scripts or external resources."""
    rows = "".join(
        f"<tr><td>{_html_verdict(it)}</td>"
        f'<td><a href="#{it.claim.name}">{escape(it.claim.statement)}</a></td></tr>'
        for it in findings
    )
    quick_note = "<p><strong>A quick run: its verdicts mean nothing.</strong></p>" if quick else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>unspool lab</title><style>{STYLE}</style></head><body>\n<h1>The claims, measured "
        f"again</h1>\n<p>{len(findings)} claims: {_verdict_counts(findings)}. <span "
        f"class=soft>{seeds_summary(findings)}</span></p>{quick_note}"
        f'<p class="soft">{VERDICTS.format("", "", "")} {CRITERIA}</p>\n<table>{rows}</table>\n'
        + "\n".join(map(_html_section, findings))
        + "\n</body></html>\n"
    )


def markdown_page(findings: Sequence[Finding]) -> str:
    """Return the report as Markdown; `write_figures` writes its figures."""
    rows = [
        f"| {MARKS[it.verdict]} | [{_cell(it.claim.statement)}](#{it.claim.name.replace('_', '-')}) | "
        f"{_cell(str(it.claim.source))} |"
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


def _html_verdict(it: Finding) -> str:
    return f'<span class="verdict" style="color: {COLOURS[it.verdict]}">{it.verdict}</span>'


def _html_section(it: Finding) -> str:
    claim = it.claim
    parts = "".join(
        f"<tr><td>{escape(words)}</td><td class=number>{held} of {seeds} seeds</td></tr>"
        for words, held, seeds in it.parts
    )
    numbers = "".join(
        f"<tr><td>{escape(name)}</td><td class=number>{each}</td>"
        f"<td class=number>{each.least:.4g} to {each.most:.4g}</td></tr>"
        for name, each in it.spreads.items()
    )
    seeds = ", ".join(str(result.seed) for result in it.results)
    figure = f"<figure>{figure_svg(it)}</figure>" if it.results else ""
    limits = f"<p class=soft>{escape(claim.limits)}</p>" if claim.limits else ""
    table = (
        "<div class=wide><table><tr><th>measured</th><th>mean ± standard deviation</th><th>least to "
        f"most</th></tr>{numbers}</table></div>"
        if numbers
        else ""
    )
    return (
        f'<section id="{claim.name}"><h2>{escape(claim.statement)}</h2>'
        f'<p class="soft">{escape(str(claim.source))} · <code>unspool lab run {claim.name}</code>'
        f"{f' · seeds {seeds}' if seeds else ''}</p><p>{_html_verdict(it)}</p>"
        f"<p>{escape(claim.measured)}</p>{limits}<table><tr><th>counts as reproduced "
        f"if</th><th>held</th></tr>{parts}</table>{figure}{table}</section>"
    )


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
