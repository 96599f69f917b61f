"""The picture of a KerBS head: how many words have how many senses, and how wide their senses have become.

    left: the number of words with j senses,   right: θ of every sense, by the number of its word's senses

After Miao et al. 2019, §4 (papers.bib: miao2019kernelized), who list words by
number of senses and by θ.
"""

from __future__ import annotations

from pathlib import Path

from unspool.diagnose.drawing import BLUE, INK, SOFT, canvas
from unspool.diagnose.senses import Senses


def draw_senses(found: Senses, path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf)."""
    by_number = found.by_number
    with canvas(path, 6.4, 3.2) as figure:
        words, widths = figure.subplots(1, 2)
        bars = words.bar(list(by_number), list(by_number.values()), color=BLUE, width=0.7)
        words.bar_label(bars, fmt="{:,.0f}", fontsize=8, color=INK)
        words.set_ylabel("words", color=INK)
        for number in by_number:
            thetas = sorted(theta for it in found.words if len(it.thetas) == number for theta in it.thetas)
            # Side by side in rising order, so that equal ones do not hide each other.
            places = [number + 0.7 * ((rank + 0.5) / len(thetas) - 0.5) for rank in range(len(thetas))]
            widths.plot(places, thetas, ".", ms=2.5, color=BLUE)
        widths.axhline(0.0, color=SOFT, lw=0.8, zorder=0)
        widths.set_ylabel("θ of each sense", color=INK)
        for panel in (words, widths):
            panel.set_xticks(list(by_number))
            panel.set_xlabel("senses of the word", color=INK)
            panel.spines[["right", "top"]].set_visible(False)
