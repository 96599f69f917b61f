"""Measures of models and of generated texts: perplexity, BLEU, MAUVE, diversity, significance tests.

    us.evaluate.perplexity(model, ["A text.", "Another one."]).value

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
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
    from unspool.evaluate.known_truth import (
        DecoderTruth as DecoderTruth,
        TextTruth as TextTruth,
        decoder_truth as decoder_truth,
        text_truth as text_truth,
    )
    from unspool.evaluate.mauve_curve import (
        Mauve as Mauve,
        features as features,
        mauve as mauve,
        text_mauve as text_mauve,
    )
    from unspool.evaluate.prompt_coherence import Coherence as Coherence, coherence as coherence
    from unspool.evaluate.reference_overlap import (
        Overlap as Overlap,
        length_ratio as length_ratio,
        overlap as overlap,
        overlap_measures as overlap_measures,
        self_bleu as self_bleu,
    )
    from unspool.evaluate.report import html_report as html_report
    from unspool.evaluate.significance import (
        Interval as Interval,
        PairedTest as PairedTest,
        approximate_randomisation as approximate_randomisation,
        bootstrap as bootstrap,
        paired_bootstrap as paired_bootstrap,
    )
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
    from unspool.evaluate.teacher_forcing import Perplexity as Perplexity, perplexity as perplexity

__all__, __getattr__, __dir__ = lazy_exports(__name__)
