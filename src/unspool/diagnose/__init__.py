"""Diagnoses: why text degenerates, measured on a model and a text of one's own; one file per question.

    from unspool.diagnose import thresholds

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.diagnose.beam_curse import (
        BeamWidth as BeamWidth,
        BeamWidths as BeamWidths,
        beam_widths as beam_widths,
        draw_widths as draw_widths,
    )
    from unspool.diagnose.critical_settings import Match as Match
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
    from unspool.diagnose.likelihood_trap_test import (
        LikelihoodTrap as LikelihoodTrap,
        draw_trap as draw_trap,
        likelihood_trap as likelihood_trap,
    )
    from unspool.diagnose.matched_thresholds import (
        rejected_shares as rejected_shares,
        thresholds as thresholds,
    )
    from unspool.diagnose.overestimation import (
        Failures as Failures,
        OptimalityGap as OptimalityGap,
        Underestimation as Underestimation,
        failures as failures,
        optimality_gap as optimality_gap,
        underestimation as underestimation,
    )
    from unspool.diagnose.softmax_bottleneck import (
        Bottleneck as Bottleneck,
        bottleneck as bottleneck,
        least_error as least_error,
        own_text as own_text,
        rank_limit as rank_limit,
        spectrum as spectrum,
    )
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
    from unspool.diagnose.word_senses import (
        Place as Place,
        Senses as Senses,
        WordSenses as WordSenses,
        WordUse as WordUse,
        sense_contexts as sense_contexts,
        senses as senses,
    )
    from unspool.plots.charts import (
        draw_heads as draw_heads,
        draw_intervals as draw_intervals,
        draw_reliability as draw_reliability,
        draw_senses as draw_senses,
        draw_spectrum as draw_spectrum,
    )
    from unspool.plots.rank_plot import (
        RankPicture as RankPicture,
        draw_ranks as draw_ranks,
        rank_picture as rank_picture,
    )
    from unspool.plots.simplex_plot import (
        Feasible as Feasible,
        draw_simplex as draw_simplex,
        feasible as feasible,
    )

__all__, __getattr__, __dir__ = lazy_exports(__name__)
