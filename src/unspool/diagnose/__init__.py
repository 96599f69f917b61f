"""Diagnoses: why text degenerates, measured on a model and a text of one's own; one file per question.

    from unspool.diagnose import thresholds

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.deferred import deferred

if TYPE_CHECKING:
    from unspool.diagnose.matched_thresholds import rejected_shares, thresholds
    from unspool.diagnose.matching import Match
    from unspool.diagnose.overestimation import (
        Failures,
        OptimalityGap,
        Underestimation,
        failures,
        optimality_gap,
        underestimation,
    )
    from unspool.diagnose.ranks_picture import RankPicture, draw_ranks, rank_picture
    from unspool.diagnose.sense_uses import Place, WordUse, sense_contexts
    from unspool.diagnose.senses_picture import draw_senses
    from unspool.diagnose.simplex_picture import Feasible, draw_simplex, feasible
    from unspool.diagnose.softmax_bottleneck import (
        Bottleneck,
        bottleneck,
        least_error,
        own_text,
        rank_limit,
        spectrum,
    )
    from unspool.diagnose.spectrum_picture import draw_spectrum
    from unspool.diagnose.word_senses import Senses, WordSenses, senses

_HOME: dict[str, str] = {
    "Bottleneck": "unspool.diagnose.softmax_bottleneck",
    "Failures": "unspool.diagnose.overestimation",
    "Feasible": "unspool.diagnose.simplex_picture",
    "Match": "unspool.diagnose.matching",
    "OptimalityGap": "unspool.diagnose.overestimation",
    "Place": "unspool.diagnose.sense_uses",
    "RankPicture": "unspool.diagnose.ranks_picture",
    "Senses": "unspool.diagnose.word_senses",
    "Underestimation": "unspool.diagnose.overestimation",
    "WordSenses": "unspool.diagnose.word_senses",
    "WordUse": "unspool.diagnose.sense_uses",
    "bottleneck": "unspool.diagnose.softmax_bottleneck",
    "draw_ranks": "unspool.diagnose.ranks_picture",
    "draw_senses": "unspool.diagnose.senses_picture",
    "draw_simplex": "unspool.diagnose.simplex_picture",
    "draw_spectrum": "unspool.diagnose.spectrum_picture",
    "failures": "unspool.diagnose.overestimation",
    "feasible": "unspool.diagnose.simplex_picture",
    "least_error": "unspool.diagnose.softmax_bottleneck",
    "optimality_gap": "unspool.diagnose.overestimation",
    "own_text": "unspool.diagnose.softmax_bottleneck",
    "rank_limit": "unspool.diagnose.softmax_bottleneck",
    "rank_picture": "unspool.diagnose.ranks_picture",
    "rejected_shares": "unspool.diagnose.matched_thresholds",
    "sense_contexts": "unspool.diagnose.sense_uses",
    "senses": "unspool.diagnose.word_senses",
    "spectrum": "unspool.diagnose.softmax_bottleneck",
    "thresholds": "unspool.diagnose.matched_thresholds",
    "underestimation": "unspool.diagnose.overestimation",
}

__all__ = [
    "Bottleneck",
    "Failures",
    "Feasible",
    "Match",
    "OptimalityGap",
    "Place",
    "RankPicture",
    "Senses",
    "Underestimation",
    "WordSenses",
    "WordUse",
    "bottleneck",
    "draw_ranks",
    "draw_senses",
    "draw_simplex",
    "draw_spectrum",
    "failures",
    "feasible",
    "least_error",
    "optimality_gap",
    "own_text",
    "rank_limit",
    "rank_picture",
    "rejected_shares",
    "sense_contexts",
    "senses",
    "spectrum",
    "thresholds",
    "underestimation",
]

__getattr__ = deferred(__name__, _HOME)


def __dir__() -> list[str]:
    return list(__all__)
