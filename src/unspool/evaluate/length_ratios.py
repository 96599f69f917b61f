"""Length ratio: how long the outputs are, for each token of their references.

    ratio = Σᵢ |outputᵢ| / Σᵢ |referenceᵢ|

What BLEU's brevity penalty is made of (Papineni et al. 2002, §2.2; papers.bib: papineni2002bleu). Below 1
the outputs are too short, as those of wide beams (Koehn & Knowles 2017; papers.bib: koehn2017six).
"""

from __future__ import annotations

from collections.abc import Sequence

from unspool.evaluate.diversity import Tokens, check_texts
from unspool.evaluate.summed_measure import SummedMeasure, ratio_of


def length_ratio(outputs: Sequence[Tokens], references: Sequence[Tokens]) -> SummedMeasure:
    """Of texts as tokens: words, ids, or the characters of strings. `.value` is the ratio."""
    check_texts(outputs)
    check_texts(references)
    if len(outputs) != len(references):
        raise ValueError(
            f"{len(outputs)} outputs cannot be compared with {len(references)} references: give one for each"
        )
    if not any(map(len, references)):
        raise ValueError("all references are empty: there is no length to compare with")
    return ratio_of(list(map(len, outputs)), list(map(len, references)))
