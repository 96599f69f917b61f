"""The report as a document: Markdown, with the figures in files beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from unspool.lab.findings import Finding
from unspool.lab.html_page import CRITERIA, seeds_said
from unspool.lab.pictures import draw

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
    return "\n".join([HEADER, summary, "", table, "", *(_section(it) for it in found)])


def write_figures(found: Sequence[Finding], page: Path) -> None:
    """Every figure that the page shows."""
    for it in found:
        if it.results:
            draw(it, page.parent / FIGURES / f"{it.claim.name}.svg")


def _section(it: Finding) -> str:
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
