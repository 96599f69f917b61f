"""Measures of what was generated.

    from unspool.evaluate import perplexity

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.deferred import deferred

if TYPE_CHECKING:
    from unspool.evaluate.comparison import Answer as Answer, DecoderRow as DecoderRow
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
    from unspool.evaluate.mauve_curve import Mauve as Mauve, features as features, mauve as mauve
    from unspool.evaluate.reference_overlap import Overlap as Overlap, overlap as overlap
    from unspool.evaluate.report import html_report as html_report
    from unspool.evaluate.text_perplexity import Perplexity as Perplexity, perplexity as perplexity

__all__, __getattr__, __dir__ = deferred(__name__)
