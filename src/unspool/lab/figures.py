"""How the lab draws: means over seeds as bars or lines, single seeds as dots or a band around them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unspool.lab.claim import Numbers
from unspool.lab.results import Finding
from unspool.plots.canvas import BLUE, GREEN, INK, ORANGE, RED, SOFT, canvas

COLOURS = (BLUE, ORANGE, GREEN, RED, SOFT, "#8e44ad", "#16a085", INK)


def bars(axes: Any, runs: Sequence[Numbers], names: Mapping[str, str], *, across: bool = True) -> None:
    """A bar for each number, named by `names`: number → label; a dot for each seed."""
    values = np.array([[run[name] for run in runs] for name in names], dtype=float)
    places = np.arange(len(names))
    dots = np.repeat(places, len(runs))
    if across:
        axes.barh(places, values.mean(1), color=BLUE, alpha=0.55, height=0.65)
        axes.plot(values.ravel(), dots, "o", color=INK, markersize=3)
        axes.set_yticks(places, list(names.values()))
        axes.set_ylim(len(names) - 0.4, -0.6)  # the first at the top, also where panels share the axis
        axes.grid(axis="x", alpha=0.3)
    else:
        axes.bar(places, values.mean(1), color=BLUE, alpha=0.55, width=0.65)
        axes.plot(dots, values.ravel(), "o", color=INK, markersize=3)
        axes.set_xticks(places, list(names.values()))
        axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def lines(axes: Any, runs: Sequence[Numbers], x: str, names: Mapping[str, str]) -> None:
    """A line for each curve over the curve `x`: its mean over seeds, with a band from least to most."""
    for (name, label), colour in zip(names.items(), COLOURS * 4, strict=False):
        y = np.array([run[name] for run in runs], dtype=float)
        at = np.asarray(runs[0][x], dtype=float)
        axes.plot(at, y.mean(0), "o-", color=colour, label=label, markersize=3)
        axes.fill_between(at, y.min(0), y.max(0), color=colour, alpha=0.15, linewidth=0)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def draw(finding: Finding, path: Path) -> None:
    """The claim's figure, as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with canvas(path, *finding.claim.size) as figure:
        finding.claim.draw(figure, finding.runs)


def svg(finding: Finding) -> str:
    """The claim's figure, as SVG to be put into a page."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.svg"
        draw(finding, path)
        found = path.read_text(encoding="utf-8")
    return found[found.index("<svg") :]
