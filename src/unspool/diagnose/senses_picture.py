"""The picture of a KerBS head: how many words have how many senses, and how wide their senses have become.

    left: the number of words with j senses,   right: θ of every sense, by the number of its word's senses
    below, where they are given: how much each sense of some words is used, with a context of its own

After Miao et al. 2019, §4 (papers.bib: miao2019kernelized), who list words by
number of senses and by θ.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unspool.decode.arguments import shown
from unspool.diagnose.drawing import BLUE, INK, SOFT, canvas, drawn, label
from unspool.diagnose.word_senses import Senses

MOST = 16
"""Senses whose use is drawn."""


def draw_senses(found: Senses, path: str | Path, uses: Sequence[tuple[str, float]] = ()) -> None:
    """Save the picture (.svg, .png, .pdf); `uses` are labels and shares of some senses."""
    drawn(found, Senses)
    if not isinstance(uses, Sequence) or not all(_is_use(use) for use in uses):
        raise TypeError(f"uses is {shown(uses)}, but must be a list of labels and shares: [(label, 0.5), …].")
    by_number, uses = found.by_number, uses[:MOST]
    below = 0.24 * len(uses) + 0.5 * bool(uses)
    with canvas(path, 6.4, 3.2 + below) as figure:
        if uses:
            above, under = figure.subfigures(2, 1, height_ratios=[3.2, below])
            _draw_uses(under, uses)
        else:
            above = figure
        words, widths = above.subplots(1, 2)
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


def _is_use(use: Any) -> bool:
    match use:
        case (str(), float() | int()):
            return True
    return False


def _draw_uses(figure: Any, uses: Sequence[tuple[str, float]]) -> None:
    panel = figure.subplots()
    panel.barh(range(len(uses)), [share for _, share in uses], color=BLUE, height=0.7)
    panel.set_yticks(range(len(uses)), [_drawable(text) for text, _ in uses], fontsize=7, parse_math=False)
    panel.invert_yaxis()
    panel.set_xlim(0.0, 1.0)
    panel.set_xlabel("share of the word's places that the sense says", color=INK)
    panel.spines[["right", "top"]].set_visible(False)


def _drawable(text: str) -> str:
    """A context as it can be drawn; between words, a space is a space."""
    return " ".join(label(word) for word in text.split(" "))
