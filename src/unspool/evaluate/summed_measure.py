"""Corpus measures that are functions of sums over texts, for bootstrap intervals and paired tests.

    m(x₁ … x_N) = f(Σᵢ c(xᵢ)),   c(x) the counts of one text

Examples are means, perplexity (nats, tokens), BLEU, chrF and TER. Resampling changes only the sums, so texts
are counted once (Koehn 2004; papers.bib: koehn2004statistical). Measures that count distinct items
(distinct-n, Zipf, MAUVE) do not have this form: resampled texts repeat and would lower them.

Symbols: c `counts_NK`, f `of_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf

import numpy as np
from numpy.typing import NDArray

from unspool.decode.arguments import as_number, function_of, items, shown

Counts = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SummedMeasure:
    """Counts of each text, and the measure as a function of their sums."""

    counts_NK: Counts
    of_sums: Callable[[Counts], float]
    """(K,) → the measure."""

    def __post_init__(self) -> None:
        counts_NK = self.counts_NK
        is_table = isinstance(counts_NK, np.ndarray) and counts_NK.ndim == 2 and counts_NK.size > 0
        if not is_table or counts_NK.dtype.kind not in "fiu" or not np.isfinite(counts_NK).all():
            raise ValueError(f"counts_NK is {shown(counts_NK)}, but must be finite numbers (texts, counts)")
        if not function_of(self.of_sums, 1):
            raise TypeError(f"of_sums is {shown(self.of_sums)}, but must be a function of the (K,) sums")

    def __len__(self) -> int:
        return len(self.counts_NK)

    @property
    def value(self) -> float:
        """The measure of the corpus."""
        return self.of_sums(self.counts_NK.sum(axis=0))

    def resampled(self, times_BN: Counts) -> Counts:
        """Return the measure (B,) of B corpora in which text n occurs times_BN[b, n] times."""
        return np.array([self.of_sums(sums_K) for sums_K in times_BN @ self.counts_NK])


def mean_of(values: Sequence[float]) -> SummedMeasure:
    """Return the mean of one number per text."""
    numbers = items("values", values, "a list of numbers, one for each text")
    return ratio_of(numbers, [1.0] * len(numbers))


def ratio_of(above: Sequence[float], below: Sequence[float]) -> SummedMeasure:
    """Return Σ above / Σ below, so that long texts weigh more than in a mean of quotients."""
    columns = [items("values", column, "a list of numbers, one for each text") for column in (above, below)]
    if len({*map(len, columns)}) > 1 or not columns[0]:
        counts = " and ".join(str(len(column)) for column in columns)
        raise ValueError(f"found {counts} values: give one for each of one or more texts")
    advice = "Leave out texts without a number."
    numbers = [
        [float(as_number("a value of a text", value, advice=advice)) for value in row] for row in columns
    ]
    return SummedMeasure(np.array(numbers).T, _quotient)


def perplexity_of(nats: Sequence[float], tokens: Sequence[float]) -> SummedMeasure:
    """Return exp(Σ nats / Σ tokens), from −Σ log p and the number of tokens of each text."""
    return SummedMeasure(ratio_of(nats, tokens).counts_NK, _perplexity)


def _quotient(sums_2: Counts) -> float:
    return float(sums_2[0] / sums_2[1]) if sums_2[1] else float("nan")


def _perplexity(sums_2: Counts) -> float:
    mean = _quotient(sums_2)
    return exp(mean) if mean < 709 else inf
