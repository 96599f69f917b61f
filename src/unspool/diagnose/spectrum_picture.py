"""The picture of a softmax bottleneck: the singular values of a model's log-probabilities, largest first.

    σ₁ ≥ σ₂ ≥ …  of A′ = log softmax(HWᵀ), which fall to rounding after D + 1 of them (D + 2 with a bias)

After Yang et al. 2018, §2.2 (papers.bib: yang2018breaking), where the rank itself is the claim.
"""

from __future__ import annotations

from pathlib import Path

from unspool.diagnose.drawing import BLUE, INK, ORANGE, RED, SOFT, canvas, drawn
from unspool.diagnose.softmax_bottleneck import Bottleneck


def draw_spectrum(found: Bottleneck, path: str | Path) -> None:
    """Save the picture (.svg, .png, .pdf)."""
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
