"""Measures that are functions of sums, their bootstrap intervals, and a paired test of two systems.

    m*_b = m(x_{i₁} … x_{i_N}),  i ~ uniform{1 … N},  b = 1 … B;    [ m*_((1−l)/2), m*_((1+l)/2) ]

The percentile interval of Efron 1979 (papers.bib: efron1979bootstrap), of corpus measures as in Koehn 2004
(papers.bib: koehn2004statistical). Symbols: B `samples`, l `level`.

Only texts are resampled: the interval does not cover other seeds of a decoder or other training runs. For
fewer than about 20 texts it is too narrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf

import numpy as np
from numpy.typing import NDArray

from unspool.arguments import as_int, as_number, function_of, items, shown

Counts = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SummedMeasure:
    """A corpus measure that is a function of sums over texts.

        m(x₁ … x_N) = f(Σᵢ c(xᵢ)),   c(x) the counts of one text

    Examples are means, perplexity (nats, tokens), BLEU, chrF and TER. Resampling changes only the sums, so
    texts are counted once (Koehn 2004; papers.bib: koehn2004statistical). Measures that count distinct items
    (distinct-n, Zipf, MAUVE) do not have this form: resampled texts repeat and would lower them.
    """

    counts_NK: Counts
    """c of each text."""
    of_sums: Callable[[Counts], float]
    """f: (K,) → the measure."""

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
    return SummedMeasure(ratio_of(nats, tokens).counts_NK, lambda sums_2: bounded_exp(_quotient(sums_2)))


def _quotient(sums_2: Counts) -> float:
    return float(sums_2[0] / sums_2[1]) if sums_2[1] else float("nan")


def bounded_exp(x: float) -> float:
    """e^x; infinite instead of an OverflowError."""
    return exp(x) if x < 709 else inf


SAMPLES = 1000
CHUNK = 1 << 22
"""Counts in memory at once."""


@dataclass(frozen=True)
class Interval:
    """A measure with its confidence interval."""

    value: float
    low: float
    high: float
    level: float
    """Share of resampled corpora with a measure between low and high."""

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def bootstrap(
    measure: SummedMeasure, *, samples: int = SAMPLES, level: float = 0.95, seed: int = 0
) -> Interval:
    """Compute the percentile bootstrap interval of a measure; for one text its width is 0."""
    _check_measures(measure)
    samples, seed = check_draws(samples, seed)
    level = as_number("level", level, above=0, at_most=1, advice="0.95 is usual.")
    parts = resample_counts(len(measure), samples, seed)
    resampled_B = np.concatenate([measure.resampled(times_BN) for times_BN in parts])
    valid_B = resampled_B[~np.isnan(resampled_B)]
    if not valid_B.size:
        raise ValueError("the measure is NaN on every resampled corpus")
    # Without interpolation, because the mean of −∞ and ∞ is NaN.
    low = float(np.quantile(valid_B, (1 - level) / 2, method="lower"))
    high = float(np.quantile(valid_B, (1 + level) / 2, method="higher"))
    return Interval(measure.value, low, high, level)


def resample_counts(texts: int, samples: int, seed: int) -> list[NDArray[np.float64]]:
    """Return how often each text occurs in each resampled corpus: (B, N), in parts that fit into memory."""
    rng, parts = np.random.default_rng(seed), []
    size = max(1, CHUNK // texts)
    for start in range(0, samples, size):
        rows = min(size, samples - start)
        parts.append(rng.multinomial(texts, np.full(texts, 1 / texts), size=rows).astype(float))
    return parts


def check_draws(samples: int, seed: int) -> tuple[int, int]:
    """Check the number of resampled corpora and the seed."""
    samples = as_int("samples", samples, at_least=1, advice="1000 is usual.")
    if samples > 1_000_000:
        raise ValueError(f"samples is {shown(samples)}, but must be at most 1,000,000")
    return samples, as_int("seed", seed, at_least=0, advice="The same seed gives the same draws.")


ROUNDING = 1e-12
"""Relative rounding error of sums in another order: differences within it count as equal."""


@dataclass(frozen=True)
class PairedTest:
    """The difference of two systems on the same texts, and the probability of one as large by chance.

        p = (1 + #{ |d*_b| ≥ |d| }) / (1 + B)

    Approximate randomisation (Riezler & Maxwell 2005; papers.bib: riezler2005pitfalls): the two outputs for
    each text are swapped with probability ½, which would not matter if the systems were equal.

    sacrebleu's test counts only draws with |d*| > |d|. Integer counts (TER: edits) often give |d*| = |d|, and
    without these draws p is too small: equal systems differ at level α in more than a share α of tests.
    `ties` is the share of such draws; p − ties is sacrebleu's p.
    """

    difference: float
    """The first system's measure minus the second's."""
    p: float
    samples: int
    ties: float = 0.0
    """The part of p from draws with |d*| = |d|, which sacrebleu leaves out."""


def approximate_randomisation(
    first: SummedMeasure, second: SummedMeasure, *, samples: int = SAMPLES, seed: int = 0
) -> PairedTest:
    """Approximate randomisation test: swap the outputs of the two systems at random."""
    _check_measures(first, second)
    samples, seed = check_draws(samples, seed)
    a_NK, b_NK = first.counts_NK, second.counts_NK
    rng, parts = np.random.default_rng(seed), list[Counts]()
    size = max(1, CHUNK // len(first))
    for start in range(0, samples, size):
        kept_BN = rng.integers(0, 2, size=(min(size, samples - start), len(first))).astype(float)
        swapped_BN = 1 - kept_BN
        a_BK, b_BK = kept_BN @ a_NK + swapped_BN @ b_NK, swapped_BN @ a_NK + kept_BN @ b_NK
        parts.append(
            np.array([first.of_sums(a) - second.of_sums(b) for a, b in zip(a_BK, b_BK, strict=True)])
        )
    difference, differences_B = first.value - second.value, np.concatenate(parts)
    threshold = abs(difference) - ROUNDING * max(1.0, abs(difference))
    # NaN counts as large: an unmeasurable draw must not make a difference more significant.
    as_large = int((~(np.abs(differences_B) < threshold)).sum())
    larger = int((~(np.abs(differences_B) <= 2 * abs(difference) - threshold)).sum())
    p, ties = (1 + as_large) / (1 + samples), (as_large - larger) / (1 + samples)
    return PairedTest(difference, p, samples, ties)


def _check_measures(*measures: SummedMeasure) -> None:
    for measure in measures:
        if not isinstance(measure, SummedMeasure):
            raise TypeError(f"{shown(measure)} is not a SummedMeasure: create one with mean_of([…])")
    shapes = [measure.counts_NK.shape for measure in measures]
    if shapes[0] != shapes[-1]:
        raise ValueError(f"paired tests need the same texts and measure, but counts have shapes {shapes}")
