"""Diagnoses: measure why the text of a model degenerates. One module per question.

    us.diagnose.loop_rates(model, prompts, {"greedy": us.Greedy()}).verdict

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.diagnose.beam_search_curse import beam_widths as beam_widths
    from unspool.diagnose.dependency_agreement import agreements as agreements
    from unspool.diagnose.exposure_bias import exposure as exposure, true_exposure as true_exposure
    from unspool.diagnose.feasible_set import feasible as feasible
    from unspool.diagnose.likelihood_traps import likelihood_trap as likelihood_trap
    from unspool.diagnose.matched_thresholds import (
        rejected_shares as rejected_shares,
        thresholds as thresholds,
    )
    from unspool.diagnose.overestimation import (
        failures as failures,
        optimality_gap as optimality_gap,
        underestimation as underestimation,
    )
    from unspool.diagnose.ranked_tokens import rank_tokens as rank_tokens
    from unspool.diagnose.softmax_bottleneck import (
        bottleneck as bottleneck,
        least_error as least_error,
        own_text as own_text,
        rank_limit as rank_limit,
        spectrum as spectrum,
    )
    from unspool.diagnose.text_attention import attention_maps as attention_maps
    from unspool.diagnose.text_loops import loop_rates as loop_rates
    from unspool.diagnose.word_senses import sense_contexts as sense_contexts, senses as senses

__all__, __getattr__, __dir__ = lazy_exports(__name__)
