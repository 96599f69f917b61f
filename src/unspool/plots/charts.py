"""The picture of measures with their intervals: a panel for each measure, a line for each system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from unspool.decode.arguments import items, shown
from unspool.diagnose.dependency_agreement import LabelAgreement
from unspool.diagnose.softmax_bottleneck import Bottleneck
from unspool.diagnose.word_senses import Senses
from unspool.evaluate.confidence_calibration import Calibration
from unspool.evaluate.significance import Interval
from unspool.plots.canvas import BLUE, INK, ORANGE, RED, SOFT, canvas, drawn, label

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


# The picture of dependency heads: for each label, the best head beside the best fixed offset.


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


def draw_reliability(found: Calibration, path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf).

    The reliability diagram: how often a model is right, by how sure it is, and how often it is so sure.

    After Guo et al. 2017, figure 1 (papers.bib: guo2017calibration).
    """
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


MOST = 16
"""Senses whose use is drawn."""


def draw_senses(found: Senses, path: str | Path, uses: Sequence[tuple[str, float]] = ()) -> None:
    """Save the picture (.svg, .png, .pdf); `uses` are labels and shares of some senses.

    The picture of a KerBS head: how many words have how many senses, and how wide their senses have become.

        left: the number of words with j senses,   right: θ of every sense, by the number of its word's senses
        below, where they are given: how much each sense of some words is used, with a context of its own

    After Miao et al. 2019, §4 (papers.bib: miao2019kernelized), who list words by
    number of senses and by θ.
    """
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


def draw_spectrum(found: Bottleneck, path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf).

    The picture of a softmax bottleneck: the singular values of a model's log-probabilities, largest first.

        σ₁ ≥ σ₂ ≥ …  of A′ = log softmax(HWᵀ), which fall to rounding after D + 1 of them (D + 2 with a bias)

    After Yang et al. 2018, §2.2 (papers.bib: yang2018breaking), where the rank itself is the claim.
    """
    drawn(found, Bottleneck)
    with canvas(path, 6.4, 3.6) as figure:
        panel = figure.subplots()
        ranks = range(1, len(found.singular_values) + 1)
        # What is 0 in double precision has no place on a logarithmic axis; it stands where rounding begins.
        floor = max(1e-3 * found.smallest, 1e-300)
        shown = [max(it, floor) for it in found.singular_values]
        panel.semilogy(ranks, shown, ".", ms=3, color=BLUE, label="log-probabilities")
        if found.weight_singular_values:
            matrix = [max(it, floor) for it in found.weight_singular_values]
            panel.semilogy(range(1, len(matrix) + 1), matrix, ".", ms=3, color=SOFT, label="output matrix")
        panel.legend(loc="upper center", frameon=False, markerscale=3)
        panel.axhline(found.smallest, color=RED, lw=0.8, ls="--")
        panel.text(1, found.smallest, "rounding reaches up to here", color=RED, va="bottom", fontsize=8)
        if found.limit is not None:
            panel.axvline(found.limit, color=ORANGE, lw=0.8)
            panel.annotate(
                f"{found.limit_said} ",
                (found.limit, 0.98),
                xycoords=("data", "axes fraction"),
                **{"color": ORANGE, "ha": "right", "va": "top", "fontsize": 8},
            )
        panel.set_xlabel("singular value, by rank", color=INK)
        panel.set_ylabel("size", color=INK)
        panel.set_title(
            f"rank {found.rank:,} over {found.contexts:,} contexts of {found.vocab_size:,} words",
            **{"loc": "left", "fontsize": 10, "parse_math": False},
        )
        panel.spines[["right", "top"]].set_visible(False)
