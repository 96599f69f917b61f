"""Charts of repeated runs: means over seeds with 95 % intervals (Student's t), and training curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.io import new_file
from unspool.plots.canvas import BLUE, GREEN, INK, ORANGE, RED, SOFT

COLOURS = (BLUE, ORANGE, GREEN, RED, SOFT, "#8e44ad", "#16a085", INK)

Run = Mapping[str, Any]
"""The numbers of one seed; a list is a curve."""
Draw = Callable[[Any, Sequence[Run]], None]
"""Draws all runs onto a Figure, or onto the Axes of one panel."""


def half_widths(values_XN: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half the width of the 95 % interval of each row's mean; 0 for one run."""
    runs = values_XN.shape[1]
    if runs < 2:
        return np.zeros(len(values_XN))
    from scipy.stats import t

    factor = float(t.ppf(0.975, runs - 1)) / runs**0.5
    return np.asarray(factor * values_XN.std(1, ddof=1), dtype=np.float64)


def chart(*panels: Draw, **layout: Any) -> Draw:
    """Return a function that draws panels side by side; `layout` goes to matplotlib's `Figure.subplots`."""

    def draw(figure: Any, runs: Sequence[Run]) -> None:
        row = figure.subplots(1, len(panels), squeeze=False, **layout)[0]
        for axes, panel in zip(row, panels, strict=True):
            panel(axes, runs)

    return draw


def bars(
    names: Mapping[str, str] | Sequence[str],
    xlabel: str,
    number: str = "{}",
    *,
    limit: float | None = None,
    **settings: Any,
) -> Draw:
    """Return a panel with a bar for each number in `names` (number → label, or labels that `number` formats).

    A line shows the 95 % interval of the mean, and a dot each run. `limit` is marked by a dotted line;
    `settings` go to matplotlib's `Axes.set`. The height of the figure follows from the number of bars.
    """
    labels = names if isinstance(names, Mapping) else {number.format(name): name for name in names}

    def draw(axes: Any, runs: Sequence[Run]) -> None:
        values = np.array([[run[name] for run in runs] for name in labels], dtype=float)
        positions = np.arange(len(labels))
        axes.figure.set_figheight(1.25 + 0.25 * len(labels))
        axes.barh(positions, values.mean(1), color=BLUE, alpha=0.55, height=0.65)
        axes.plot(values.ravel(), np.repeat(positions + 0.2, len(runs)), "o", color=SOFT, markersize=2)
        if len(runs) > 1:
            axes.errorbar(
                values.mean(1), positions, xerr=half_widths(values), fmt="none", ecolor=INK, capsize=3
            )
        axes.set_yticks(positions, list(labels.values()))
        axes.set_ylim(len(labels) - 0.4, -0.6)  # the first at the top, also if panels share the axis
        axes.grid(axis="x", alpha=0.3)
        if limit is not None:
            axes.axvline(limit, color=RED, linestyle=":")
        axes.set(xlabel=xlabel, **settings)

    return draw


def lines(
    x: str,
    names: Mapping[str, str] | Sequence[str],
    xlabel: str = "",
    ylabel: str = "",
    *,
    ticks: Mapping[float, str] | Sequence[float] = (),
    limit: float | None = None,
    **settings: Any,
) -> Draw:
    """Return a panel with a line for each curve in `names` (curve → label, or curves) over the curve `x`.

    The line is the mean over runs, the band its 95 % interval. `ticks` are the values, and their
    labels, on the x-axis. `limit` and `settings` are as for `bars`.
    """

    def draw(axes: Any, runs: Sequence[Run]) -> None:
        at = np.asarray(runs[0][x], dtype=float)
        labels = names if isinstance(names, Mapping) else {name: name for name in names}
        for (name, label), colour in zip(labels.items(), COLOURS, strict=False):
            y = np.array([run[name] for run in runs], dtype=float)
            axes.plot(at, y.mean(0), "o-", color=colour, label=label, markersize=3)
            half = half_widths(y.T)
            axes.fill_between(at, y.mean(0) - half, y.mean(0) + half, color=colour, alpha=0.15, linewidth=0)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
        if limit is not None:
            axes.axhline(limit, color=RED, linestyle=":")
        axes.set(xlabel=xlabel, ylabel=ylabel, **settings)
        if ticks:
            marks = ticks.values() if isinstance(ticks, Mapping) else (f"{tick:g}" for tick in ticks)
            axes.set_xticks(list(ticks), list(marks))
            axes.minorticks_off()

    return draw


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
    has_nll = any("nll" in point or "valid" in point for point in points)
    labels = {"nll": "training", "valid": "validation"} if has_nll else {"loss": "loss"}
    for name, label in labels.items():
        xy = [(point["update"], point[name]) for point in points if name in point]
        if xy:
            loss.plot(*zip(*xy, strict=True), label=label, marker="." if name == "valid" else None)
    loss.set_ylabel("−log p of a token" if has_nll else "per target")
    loss.legend(frameon=False)
    xy = [(point["update"], point["lr"]) for point in points if "lr" in point]
    rate.plot(*zip(*xy, strict=True), color="grey")
    rate.set_ylabel("learning rate")
    rate.set_xlabel("update")
    with new_file(path) as fresh:
        figure.savefig(fresh, format="svg", metadata={"Date": None})
    return True
