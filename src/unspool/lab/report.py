"""The report as one HTML file: no script, nothing fetched, figures drawn in SVG inside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from unspool.lab.figures import draw, svg
from unspool.lab.results import Finding

COLOURS = {"reproduced": "#1e8449", "mixed": "#b9770e", "not reproduced": "#c0392b", "not run": "#6b6b70"}
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
    "Some criteria and set-ups were changed after a first result; the lab log (docs/lab-log.md) says which."
)


def html_page(found: Sequence[Finding], *, quick: bool = False) -> str:
    """The whole page."""
    counts: Counter[str] = Counter(it.verdict for it in found)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in COLOURS if counts[verdict])
    rows = "".join(
        f"<tr><td>{_verdict(it)}</td>"
        f'<td><a href="#{it.claim.name}">{escape(it.claim.statement)}</a></td></tr>'
        for it in found
    )
    quickly = "<p><strong>A quick run: its verdicts mean nothing.</strong></p>" if quick else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>unspool lab</title><style>{STYLE}</style></head><body>\n<h1>The claims, measured "
        f"again</h1>\n"
        f"<p>{len(found)} claims: {escape(said)}. <span "
        f"class=soft>{escape(seeds_said(found))}</span></p>{quickly}"
        '<p class="soft">A claim is reproduced where every part of its criterion holds with every seed, not '
        "reproduced where none holds with any, and mixed in between. "
        f"{CRITERIA}</p>\n<table>{rows}</table>\n"
        + "\n".join(map(_html_section, found))
        + "\n</body></html>\n"
    )


def seeds_said(found: Sequence[Finding]) -> str:
    """Which seeds, and which code."""
    seeds = sorted({result.seed for it in found for result in it.results})
    seconds = sum(result.seconds for it in found for result in it.results)
    if not seeds:
        return "Nothing has been run yet."
    return f"Seeds {', '.join(map(str, seeds))}; {seconds / 60:.0f} minutes of one core in all."


def _verdict(it: Finding) -> str:
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
    figure = f"<figure>{svg(it)}</figure>" if it.results else ""
    limits = f"<p class=soft>{escape(claim.limits)}</p>" if claim.limits else ""
    table = (
        "<div class=wide><table><tr><th>measured</th><th>mean ± standard deviation</th><th>least to "
        "most</th></tr>"
        f"{numbers}</table></div>"
        if numbers
        else ""
    )
    return (
        f'<section id="{claim.name}"><h2>{escape(claim.statement)}</h2>'
        f'<p class="soft">{escape(str(claim.source))} · <code>unspool lab run {claim.name}</code>'
        f"{f' · seeds {seeds}' if seeds else ''}</p><p>{_verdict(it)}</p>"
        f"<p>{escape(claim.measured)}</p>{limits}<table><tr><th>counts as reproduced "
        f"if</th><th>held</th></tr>{parts}"
        f"</table>{figure}{table}</section>"
    )


# The report as a document: Markdown, with the figures in files beside it.


FIGURES = "img/lab"
MARKS = {"reproduced": "✔", "mixed": "≈", "not reproduced": "✘", "not run": "–"}
HEADER = f"""# The claims, measured again

Every claim of the documents that this library stands on is a small experiment: one file in
[src/unspool/lab/claims](../src/unspool/lab/claims/__init__.py), with what is measured and the criterion by
which it counts as reproduced. {CRITERIA} This page is written by

    unspool lab report --from docs/lab.json --markdown docs/lab.md

from numbers that `unspool lab run --all` has measured and `unspool lab report --json` has written. A claim is
reproduced (✔) where every part of its criterion holds with every seed, not reproduced (✘) where none holds
with any, and mixed (≈) in between. All of it is small: made-up languages, the models inside the package,
models that train for seconds. What holds here may fail for larger ones, and the other way round.
"""


def markdown_page(found: Sequence[Finding]) -> str:
    """The whole page; its figures are written by `write_figures`."""
    counts: Counter[str] = Counter(it.verdict for it in found)
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MARKS if counts[verdict])
    rows = [
        f"| {MARKS[it.verdict]} | [{_cell(it.claim.statement)}](#{_anchor(it.claim.name)}) | "
        f"{_cell(str(it.claim.source))} |"
        for it in found
    ]
    table = "\n".join(["| | claim | source |", "|---|---|---|", *rows])
    summary = f"**{len(found)} claims: {said}.** {seeds_said(found)}"
    return "\n".join([HEADER, summary, "", table, "", *(_markdown_section(it) for it in found)])


def write_figures(found: Sequence[Finding], page: Path) -> None:
    """Every figure that the page shows."""
    for it in found:
        if it.results:
            draw(it, page.parent / FIGURES / f"{it.claim.name}.svg")


def _markdown_section(it: Finding) -> str:
    claim = it.claim
    lines = [f"## {claim.name.replace('_', ' ')}", "", f"**{claim.statement}** *{claim.source}.*", ""]
    lines += [f"{MARKS[it.verdict]} **{it.verdict}**. {claim.measured}", ""]
    lines += [claim.limits, ""] if claim.limits else []
    lines += ["| counts as reproduced if | held |", "|---|---|"]
    lines += [f"| {_cell(words)} | {held} of {seeds} seeds |" for words, held, seeds in it.parts]
    if it.results:
        lines += [
            "",
            f"![{claim.name.replace('_', ' ')}: {_cell(claim.statement)}]({FIGURES}/{claim.name}.svg)",
            "",
        ]
        lines += ["| measured | mean ± standard deviation | least to most |", "|---|---|---|"]
        lines += [
            f"| {_cell(name)} | {each} | {each.least:.4g} to {each.most:.4g} |"
            for name, each in it.spreads.items()
        ]
    return "\n".join([*lines, ""])


def _anchor(name: str) -> str:
    return name.replace("_", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
