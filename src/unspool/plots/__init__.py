"""Figures of results, drawn with matplotlib and saved as .svg, .png or .pdf.

    us.plots.draw_loops(us.diagnose.loop_rates(model, prompts, decoders), "loops.svg")

matplotlib is imported when a figure is drawn. Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.plots.figures import (
        draw_attention as draw_attention,
        draw_heads as draw_heads,
        draw_intervals as draw_intervals,
        draw_loops as draw_loops,
        draw_ranks as draw_ranks,
        draw_reliability as draw_reliability,
        draw_senses as draw_senses,
        draw_simplex as draw_simplex,
        draw_spectrum as draw_spectrum,
        draw_trap as draw_trap,
        draw_widths as draw_widths,
    )

__all__, __getattr__, __dir__ = lazy_exports(__name__)
