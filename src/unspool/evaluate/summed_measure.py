"""Measures of a whole corpus that are a function of sums over its texts.

    m(x₁ … x_N) = f(Σᵢ c(xᵢ)),   c(x) the counts of one text

A mean is one, and so are perplexity (nats, tokens), BLEU, chrF and TER. That is what lets a corpus be drawn
again a thousand times without reading it again: texts are counted once, and only the sums change (Koehn
2004; papers.bib: koehn2004statistical). What asks how many things are *different* (distinct-n, Zipf,
MAUVE) is none: a text drawn twice would make it look poorer than it is.

Symbols: c `counts_NK`, f `of_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.decode.arguments import as_number, function_of, items, shown

Counts = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SummedMeasure:
    """The counts of every text, and the measure as a function of their sums."""

    counts_NK: Counts
    of_sums: Callable[[Counts], float]
    """(K,) → the measure."""
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        counts_NK = self.counts_NK
        if not isinstance(counts_NK, np.ndarray) or counts_NK.ndim != 2 or not counts_NK.size:
            raise ValueError(
                f"counts_NK is {shown(counts_NK)}, but must be an array (texts, counts), of one text or more."
            )
        if counts_NK.dtype.kind not in "fiu" or not np.isfinite(counts_NK).all():
            raise ValueError(f"counts_NK holds {counts_NK.dtype}, but must hold numbers, all finite.")
        if not function_of(self.of_sums, 1):
            raise TypeError(f"of_sums is {shown(self.of_sums)}, but must be a function of the (K,) sums.")

    def __len__(self) -> int:
        return len(self.counts_NK)

    @property
    def value(self) -> float:
        """Of the texts as they are."""
        return self.of_sums(self.counts_NK.sum(axis=0))

    def drawn(self, times_BN: Counts) -> Counts:
        """(B,): of B corpora in which text n occurs times_BN[b, n] times."""
        return np.array([self.of_sums(sums_K) for sums_K in times_BN @ self.counts_NK])


def mean_of(values: Sequence[float]) -> SummedMeasure:
    """The mean of a number for each text."""
    found = items("values", values, "a list of numbers, one for each text")
    if not found:
        raise ValueError("there is nothing to measure: give the number of at least one text")
    numbers = [_number(it) for it in found]
    return SummedMeasure(np.array([(it, 1.0) for it in numbers]), _quotient)


def ratio_of(above: Sequence[float], below: Sequence[float]) -> SummedMeasure:
    """Σ above / Σ below: not the mean of quotients, so that long texts weigh more."""
    tops = items("above", above, "a list of numbers, one for each text")
    bottoms = items("below", below, "a list of numbers, one for each text")
    if len(tops) != len(bottoms) or not tops:
        raise ValueError(
            f"{len(tops)} numbers stand above and {len(bottoms)} below: give both for each text, of one text "
            "or more"
        )
    numbers = [(_number(a), _number(b)) for a, b in zip(tops, bottoms, strict=True)]
    return SummedMeasure(np.array(numbers), _quotient)


def perplexity_of(nats: Sequence[float], tokens: Sequence[float]) -> SummedMeasure:
    """exp(Σ nats / Σ tokens), where each text has its −Σ log p and its number of tokens."""
    counts_NK = ratio_of(nats, tokens).counts_NK
    return SummedMeasure(counts_NK, _perplexity, lower_is_better=True)


def _number(value: Any) -> float:
    return float(as_number("a number of a text", value, advice="Leave a text out that has none."))


def _quotient(sums_2: Counts) -> float:
    return float(sums_2[0] / sums_2[1]) if sums_2[1] else float("nan")


def _perplexity(sums_2: Counts) -> float:
    mean = _quotient(sums_2)
    return exp(mean) if mean < 709 else inf
