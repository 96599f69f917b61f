"""Measures of what was generated.

    from unspool.evaluate import perplexity

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.deferred import deferred

if TYPE_CHECKING:
    from unspool.evaluate.bootstrap_interval import Interval as Interval, bootstrap as bootstrap
    from unspool.evaluate.comparison import Answer as Answer, DecoderRow as DecoderRow
    from unspool.evaluate.confidence_calibration import (
        Calibration as Calibration,
        ConfidenceBin as ConfidenceBin,
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
    from unspool.evaluate.exact_support import (
        Dial as Dial,
        Matched as Matched,
        Support as Support,
        at_mass as at_mass,
        compare_support as compare_support,
        support as support,
    )
    from unspool.evaluate.length_ratios import length_ratio as length_ratio
    from unspool.evaluate.mauve_curve import (
        Mauve as Mauve,
        features as features,
        mauve as mauve,
        text_mauve as text_mauve,
    )
    from unspool.evaluate.overlap_counts import overlap_measures as overlap_measures
    from unspool.evaluate.paired_systems import (
        PairedTest as PairedTest,
        approximate_randomisation as approximate_randomisation,
        paired_bootstrap as paired_bootstrap,
    )
    from unspool.evaluate.prompt_coherence import Coherence as Coherence, coherence as coherence
    from unspool.evaluate.reference_overlap import Overlap as Overlap, overlap as overlap
    from unspool.evaluate.report import html_report as html_report
    from unspool.evaluate.self_overlap import self_bleu as self_bleu
    from unspool.evaluate.summed_measure import (
        SummedMeasure as SummedMeasure,
        mean_of as mean_of,
        perplexity_of as perplexity_of,
        ratio_of as ratio_of,
    )
    from unspool.evaluate.system_measures import (
        SystemMeasures as SystemMeasures,
        measure_system as measure_system,
        paired_tests as paired_tests,
    )
    from unspool.evaluate.text_perplexity import Perplexity as Perplexity, perplexity as perplexity
    from unspool.evaluate.truth_of_decoder import (
        DecoderTruth as DecoderTruth,
        decoder_truth as decoder_truth,
    )
    from unspool.evaluate.truth_of_texts import TextTruth as TextTruth, text_truth as text_truth

__all__, __getattr__, __dir__ = deferred(__name__)
