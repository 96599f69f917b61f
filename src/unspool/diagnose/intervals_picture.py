"""The picture of measures with their intervals: a panel for each measure, a line for each system."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path

from unspool.decode.arguments import shown
from unspool.diagnose.drawing import BLUE, INK, SOFT, canvas, drawn
from unspool.evaluate.bootstrap_interval import Interval

COLUMNS = 3


def draw_intervals(panels: Mapping[str, Mapping[str, Interval]], path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf): measure → system → interval; one of no width is a dot."""
    if not isinstance(panels, Mapping) or not panels:
        raise TypeError(f"panels is {shown(panels)}, but must be a dict: measure → system → interval.")
    for systems in panels.values():
        if not isinstance(systems, Mapping):
            raise TypeError(f"{shown(systems)} must be a dict: system → interval.")
        for each in systems.values():
            drawn(each, Interval)
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    most = max(len(systems) for systems in panels.values())
    with canvas(path, 3.4 * columns + 0.6, rows * (0.8 + 0.28 * most)) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for panel, (measure, systems) in zip(axes, panels.items(), strict=False):
            for row, it in enumerate(systems.values()):
                if not isfinite(it.value):
                    continue
                low, high = (end if isfinite(end) else it.value for end in (it.low, it.high))
                panel.plot([low, high], [row, row], color=SOFT, lw=3, solid_capstyle="butt")
                panel.plot([it.value], [row], "o", color=BLUE, ms=5)
            panel.set_yticks(range(len(systems)), [_label(name) for name in systems], parse_math=False)
            panel.set_ylim(len(systems) - 0.5, -0.5)
            panel.set_title(measure, **{"loc": "left", "fontsize": 9, "color": INK, "parse_math": False})
            panel.spines[["right", "top"]].set_visible(False)
            panel.margins(x=0.12)
        for panel in axes[len(panels) :]:
            panel.set_visible(False)


def _label(name: str) -> str:
    return name if len(name) <= 28 else name[:27] + "…"
