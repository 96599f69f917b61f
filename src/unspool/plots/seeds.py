"""Charts of repeated runs: means over seeds, with single seeds as dots or a band, and training curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unspool.io import new_file
from unspool.plots.canvas import BLUE, GREEN, INK, ORANGE, RED, SOFT, hide_frame

COLOURS = (BLUE, ORANGE, GREEN, RED, SOFT, "#8e44ad", "#16a085", INK)

Run = Mapping[str, Any]


def bars(axes: Any, runs: Sequence[Run], names: Mapping[str, str], *, horizontal: bool = True) -> None:
    """Draw a bar for each number in `names` (number → label), and a dot for each run."""
    values = np.array([[run[name] for run in runs] for name in names], dtype=float)
    positions = np.arange(len(names))
    dots = np.repeat(positions, len(runs))
    if horizontal:
        axes.barh(positions, values.mean(1), color=BLUE, alpha=0.55, height=0.65)
        axes.plot(values.ravel(), dots, "o", color=INK, markersize=3)
        axes.set_yticks(positions, list(names.values()))
        axes.set_ylim(len(names) - 0.4, -0.6)  # the first at the top, also if panels share the axis
        axes.grid(axis="x", alpha=0.3)
    else:
        axes.bar(positions, values.mean(1), color=BLUE, alpha=0.55, width=0.65)
        axes.plot(dots, values.ravel(), "o", color=INK, markersize=3)
        axes.set_xticks(positions, list(names.values()))
        axes.grid(axis="y", alpha=0.3)
    hide_frame(axes)


def lines(axes: Any, runs: Sequence[Run], x: str, names: Mapping[str, str]) -> None:
    """Draw a line for each curve in `names` over the curve `x`: the mean, and a band from least to most."""
    for (name, label), colour in zip(names.items(), COLOURS * 4, strict=False):
        y = np.array([run[name] for run in runs], dtype=float)
        at = np.asarray(runs[0][x], dtype=float)
        axes.plot(at, y.mean(0), "o-", color=colour, label=label, markersize=3)
        axes.fill_between(at, y.min(0), y.max(0), color=colour, alpha=0.15, linewidth=0)
    axes.grid(alpha=0.3)
    hide_frame(axes)
    axes.legend(frameon=False, fontsize=8)


def draw_curves(points: Sequence[Run], path: Path) -> bool:
    """Draw loss, validation and learning rate of a training run; False without points or matplotlib."""
    if not points:
        return False
    try:
        from matplotlib.figure import Figure  # unlike pyplot, Figure does not need a display
    except ImportError:
        return False
    figure: Any = Figure(figsize=(7, 4), layout="constrained")
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    has_nll = any("nll" in it or "valid" in it for it in points)
    labels = {"nll": "training", "valid": "validation"} if has_nll else {"loss": "loss"}
    for name, label in labels.items():
        xy = [(it["update"], it[name]) for it in points if name in it]
        if xy:
            loss.plot(*zip(*xy, strict=True), label=label, marker="." if name == "valid" else None)
    loss.set_ylabel("−log p of a token" if has_nll else "per target")
    loss.legend(frameon=False)
    rate.plot(*zip(*[(it["update"], it["lr"]) for it in points if "lr" in it], strict=True), color="grey")
    rate.set_ylabel("learning rate")
    rate.set_xlabel("update")
    with new_file(path) as fresh:
        figure.savefig(fresh, format="svg", metadata={"Date": None})
    return True
