"""The reliability diagram: how often a model is right, by how sure it is, and how often it is so sure.

After Guo et al. 2017, figure 1 (papers.bib: guo2017calibration).
"""

from __future__ import annotations

from pathlib import Path

from unspool.diagnose.drawing import BLUE, INK, ORANGE, SOFT, canvas, drawn
from unspool.evaluate.confidence_calibration import Calibration


def draw_reliability(found: Calibration, path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf)."""
    drawn(found, Calibration)
    bins = [it for it in found.bins if it.count]
    with canvas(path, 4.4, 4.8) as figure:
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        top.plot([0, 1], [0, 1], color=SOFT, lw=0.8, ls="--")
        width = 1 / len(found.bins)
        for it in bins:
            middle = (it.low + it.high) / 2
            top.bar(middle, it.accuracy, width * 0.92, color=BLUE)
            top.plot([middle - width * 0.46, middle + width * 0.46], [it.confidence] * 2, color=ORANGE, lw=2)
            below.bar(middle, it.count / found.count, width * 0.92, color=SOFT)
        top.set_ylim(0, 1.02)
        top.set_ylabel("accuracy (blue), confidence (orange)", color=INK)
        below.set_xlim(0, 1)
        below.set_xlabel("confidence: the probability of the most probable token", color=INK)
        below.set_ylabel("share", color=INK)
        chance = f"by chance {found.null.low:.4f} to {found.null.high:.4f}"
        top.set_title(f"ECE {found.ece:.4f} over {found.count:,} tokens, {chance}", loc="left", fontsize=10)
        for panel in (top, below):
            panel.spines[["right", "top"]].set_visible(False)
