"""The picture of dependency heads: for each label, the best head beside the best fixed offset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unspool.decode.arguments import items
from unspool.diagnose.dependency_agreement import LabelAgreement
from unspool.diagnose.drawing import BLUE, INK, SOFT, canvas, drawn


def draw_heads(found: Sequence[LabelAgreement], path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf)."""
    found = items("found", found, "what `agreements` found")
    for it in found:
        drawn(it, LabelAgreement)
    with canvas(path, 6.4, 0.6 + 0.28 * len(found)) as figure:
        panel = figure.subplots()
        for row, it in enumerate(found):
            panel.barh(row - 0.2, it.agreement, 0.36, color=BLUE)
            panel.barh(row + 0.2, it.offset_agreement, 0.36, color=SOFT)
            panel.text(it.agreement, row - 0.2, f" {it.layer}.{it.head}", va="center", fontsize=7, color=BLUE)
            panel.text(it.offset_agreement, row + 0.2, f" −{it.offset}", va="center", fontsize=7, color=SOFT)
        panel.set_yticks(range(len(found)), [it.label for it in found])
        panel.invert_yaxis()
        panel.set_xlim(0, 1.05)
        panel.set_xlabel("share of arcs found: best head (layer.head), best offset", color=INK)
        panel.spines[["right", "top"]].set_visible(False)
