"""Diagnoses: measure why the text of a model degenerates. One module per question.

    us.diagnose.loop_rates(model, prompts, {"greedy": us.Greedy()}).verdict

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.diagnose.beam_search_curse import (
        BeamWidth as BeamWidth,
        BeamWidths as BeamWidths,
        beam_widths as beam_widths,
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
    from unspool.diagnose.feasible_set import Feasible as Feasible, feasible as feasible
    from unspool.diagnose.likelihood_traps import (
        LikelihoodTrap as LikelihoodTrap,
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
    from unspool.diagnose.ranked_tokens import RankedTokens as RankedTokens, rank_tokens as rank_tokens
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
    )
    from unspool.diagnose.text_loops import (
        DecoderLoops as DecoderLoops,
        LoopRates as LoopRates,
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

__all__, __getattr__, __dir__ = lazy_exports(__name__)
