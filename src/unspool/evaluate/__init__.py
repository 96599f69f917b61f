"""Measures of what was generated.

    from unspool.evaluate import perplexity

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.deferred import deferred

if TYPE_CHECKING:
    from unspool.evaluate.comparison import Answer, Row
    from unspool.evaluate.diversity import distinct_n, ngrams, rep_n, seq_rep_n, zipf_coefficient
    from unspool.evaluate.exact_support import Dial, Matched, Support, at_mass, compare_support, support
    from unspool.evaluate.mauve_curve import Mauve, features, mauve
    from unspool.evaluate.reference_overlap import Overlap, overlap
    from unspool.evaluate.report import html_report
    from unspool.evaluate.text_perplexity import Perplexity, perplexity

_HOME: dict[str, str] = {
    "Answer": "unspool.evaluate.comparison",
    "Dial": "unspool.evaluate.exact_support",
    "Matched": "unspool.evaluate.exact_support",
    "Mauve": "unspool.evaluate.mauve_curve",
    "Overlap": "unspool.evaluate.reference_overlap",
    "Perplexity": "unspool.evaluate.text_perplexity",
    "Row": "unspool.evaluate.comparison",
    "Support": "unspool.evaluate.exact_support",
    "at_mass": "unspool.evaluate.exact_support",
    "compare_support": "unspool.evaluate.exact_support",
    "distinct_n": "unspool.evaluate.diversity",
    "features": "unspool.evaluate.mauve_curve",
    "html_report": "unspool.evaluate.report",
    "mauve": "unspool.evaluate.mauve_curve",
    "ngrams": "unspool.evaluate.diversity",
    "overlap": "unspool.evaluate.reference_overlap",
    "perplexity": "unspool.evaluate.text_perplexity",
    "rep_n": "unspool.evaluate.diversity",
    "seq_rep_n": "unspool.evaluate.diversity",
    "support": "unspool.evaluate.exact_support",
    "zipf_coefficient": "unspool.evaluate.diversity",
}

__all__ = [
    "Answer",
    "Dial",
    "Matched",
    "Mauve",
    "Overlap",
    "Perplexity",
    "Row",
    "Support",
    "at_mass",
    "compare_support",
    "distinct_n",
    "features",
    "html_report",
    "mauve",
    "ngrams",
    "overlap",
    "perplexity",
    "rep_n",
    "seq_rep_n",
    "support",
    "zipf_coefficient",
]

__getattr__ = deferred(__name__, _HOME)


def __dir__() -> list[str]:
    return list(__all__)
