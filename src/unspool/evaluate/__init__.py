"""Measures of models and of generated texts: perplexity, BLEU, MAUVE, diversity, significance tests.

    us.evaluate.perplexity(model, ["A text.", "Another one."]).value

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.evaluate.confidence_calibration import (
        calibration as calibration,
        pair_calibration as pair_calibration,
        token_calibration as token_calibration,
    )
    from unspool.evaluate.diversity import (
        distinct_n as distinct_n,
        ngrams as ngrams,
        rep_n as rep_n,
        seq_rep_n as seq_rep_n,
        zipf_coefficient as zipf_coefficient,
    )
    from unspool.evaluate.exact_support import support as support
    from unspool.evaluate.known_truth import decoder_truth as decoder_truth, text_truth as text_truth
    from unspool.evaluate.mauve_curve import features as features, mauve as mauve, text_mauve as text_mauve
    from unspool.evaluate.prompt_coherence import coherence as coherence
    from unspool.evaluate.reference_overlap import (
        length_ratio as length_ratio,
        overlap as overlap,
        overlap_measures as overlap_measures,
        self_bleu as self_bleu,
    )
    from unspool.evaluate.significance import (
        Interval as Interval,
        SummedMeasure as SummedMeasure,
        approximate_randomisation as approximate_randomisation,
        bootstrap as bootstrap,
        mean_of as mean_of,
        perplexity_of as perplexity_of,
        ratio_of as ratio_of,
    )
    from unspool.evaluate.system_measures import (
        measure_system as measure_system,
        paired_tests as paired_tests,
    )
    from unspool.evaluate.teacher_forcing import perplexity as perplexity

__all__, __getattr__, __dir__ = lazy_exports(__name__)
