"""Diagnoses: why text degenerates, measured on a model and a text of one's own; one file per question.

    from unspool.diagnose import thresholds

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.deferred import deferred

if TYPE_CHECKING:
    from unspool.diagnose.beam_curse import (
        BeamWidth as BeamWidth,
        BeamWidths as BeamWidths,
        beam_widths as beam_widths,
        draw_widths as draw_widths,
    )
    from unspool.diagnose.dependency_agreement import (
        LabelAgreement as LabelAgreement,
        agreements as agreements,
    )
    from unspool.diagnose.exposure_bias import (
        Exposure as Exposure,
        ExposurePoint as ExposurePoint,
        exposure as exposure,
        true_exposure as true_exposure,
    )
    from unspool.diagnose.heads_picture import draw_heads as draw_heads
    from unspool.diagnose.intervals_picture import draw_intervals as draw_intervals
    from unspool.diagnose.matched_thresholds import (
        rejected_shares as rejected_shares,
        thresholds as thresholds,
    )
    from unspool.diagnose.matching import Match as Match
    from unspool.diagnose.overestimation import (
        Failures as Failures,
        OptimalityGap as OptimalityGap,
        Underestimation as Underestimation,
        failures as failures,
        optimality_gap as optimality_gap,
        underestimation as underestimation,
    )
    from unspool.diagnose.ranks_picture import (
        RankPicture as RankPicture,
        draw_ranks as draw_ranks,
        rank_picture as rank_picture,
    )
    from unspool.diagnose.reliability_picture import draw_reliability as draw_reliability
    from unspool.diagnose.sense_uses import (
        Place as Place,
        WordUse as WordUse,
        sense_contexts as sense_contexts,
    )
    from unspool.diagnose.senses_picture import draw_senses as draw_senses
    from unspool.diagnose.simplex_picture import (
        Feasible as Feasible,
        draw_simplex as draw_simplex,
        feasible as feasible,
    )
    from unspool.diagnose.softmax_bottleneck import (
        Bottleneck as Bottleneck,
        bottleneck as bottleneck,
        least_error as least_error,
        own_text as own_text,
        rank_limit as rank_limit,
        spectrum as spectrum,
    )
    from unspool.diagnose.spectrum_picture import draw_spectrum as draw_spectrum
    from unspool.diagnose.text_attention import (
        AttentionMap as AttentionMap,
        AttentionMaps as AttentionMaps,
        attention_maps as attention_maps,
        draw_attention as draw_attention,
    )
    from unspool.diagnose.text_loops import (
        DecoderLoops as DecoderLoops,
        LoopRates as LoopRates,
        draw_loops as draw_loops,
        loop_rates as loop_rates,
    )
    from unspool.diagnose.trap_of_likelihood import (
        LikelihoodTrap as LikelihoodTrap,
        draw_trap as draw_trap,
        likelihood_trap as likelihood_trap,
    )
    from unspool.diagnose.word_senses import Senses as Senses, WordSenses as WordSenses, senses as senses

__all__, __getattr__, __dir__ = deferred(__name__)
