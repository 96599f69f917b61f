"""Bootstrap interval: how far a measure would move with other texts of the same kind.

    m*_b = m(x_{i₁} … x_{i_N}),  i ~ uniform{1 … N},  b = 1 … B;    [ m*_((1−l)/2), m*_((1+l)/2) ]

The percentile interval of Efron 1979 (papers.bib: efron1979bootstrap), of corpus measures as in Koehn 2004
(papers.bib: koehn2004statistical). Symbols: B `samples`, l `level`.

The texts are what is drawn: the interval says nothing of other seeds of a decoder, nor of another training
run. Of few texts (below about 20) it is too narrow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unspool.decode.arguments import as_number, as_whole, shown
from unspool.evaluate.summed_measure import Counts, SummedMeasure

SAMPLES = 1000
CHUNK = 1 << 22
"""Draws held at once."""


@dataclass(frozen=True)
class Interval:
    """A measure and where it may lie."""

    value: float
    low: float
    high: float
    level: float
    """The share of redrawn corpora whose measure lies between low and high."""

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def bootstrap(
    measure: SummedMeasure, *, samples: int = SAMPLES, level: float = 0.95, seed: int = 0
) -> Interval:
    """The interval of a measure; of one text alone it has no width."""
    checked(measure)
    samples, seed = draws(samples, seed)
    level = as_number("level", level, above=0, at_most=1, advice="0.95 is usual.")
    drawn_B = np.concatenate([measure.drawn(times_BN) for times_BN in redrawn(len(measure), samples, seed)])
    known_B = drawn_B[~np.isnan(drawn_B)]
    if not known_B.size:
        raise ValueError("the measure is no number on any redrawn corpus: is there anything to count?")
    # `lower` and `higher` take values that were drawn: between two infinities there is no number.
    low = float(np.quantile(known_B, (1 - level) / 2, method="lower"))
    high = float(np.quantile(known_B, (1 + level) / 2, method="higher"))
    return Interval(measure.value, low, high, level)


def redrawn(texts: int, samples: int, seed: int) -> list[NDArray[np.float64]]:
    """How often each text occurs in each redrawn corpus, (B, N) in parts that fit into memory."""
    dice, found = np.random.default_rng(seed), []
    part = max(1, CHUNK // texts)
    for start in range(0, samples, part):
        rows = min(part, samples - start)
        found.append(dice.multinomial(texts, np.full(texts, 1 / texts), size=rows).astype(float))
    return found


def draws(samples: int, seed: int) -> tuple[int, int]:
    """A number of draws and a seed, where they can be used."""
    samples = as_whole("samples", samples, at_least=1, advice="1000 is usual.")
    if samples > 1_000_000:
        raise ValueError(f"samples is {shown(samples)}, and more than a million draws tell nothing new")
    return samples, as_whole("seed", seed, at_least=0, advice="The same seed gives the same draws.")


def checked(measure: SummedMeasure) -> Counts:
    """The counts of a measure, if it is one."""
    if not isinstance(measure, SummedMeasure):
        raise TypeError(
            f"{shown(measure)} is no SummedMeasure: make one of numbers, as mean_of([…]) does, one for each "
            "text"
        )
    return measure.counts_NK


ROUNDING = 1e-12
"""Sums in another order differ by so much: a difference that is equal must count as equal."""


@dataclass(frozen=True)
class PairedTest:
    """The difference of two systems, and how often chance alone makes one as large.

    Two systems on the same texts: is the difference of a measure more than chance?

    Paired bootstrap (Koehn 2004; papers.bib: koehn2004statistical), two-sided, about the difference found:

        d*_b = m(A*_b) − m(B*_b), the same texts of both redrawn;   p = (1 + #{ |d*_b − d| ≥ |d| }) / (1 + B)

    Approximate randomisation (Riezler & Maxwell 2005; papers.bib: riezler2005pitfalls): were the systems
    alike, who said which of two texts would not matter:

        each text's two outputs change sides with probability ½;   p = (1 + #{ |d*_b| ≥ |d| }) / (1 + B)

    The second asks for less, and is wrong less often.

    sacrebleu differs in two ways. Its bootstrap test counts one side: its p is about half of ours. Its
    randomisation test counts only draws with |d*| > |d|. A measure of whole numbers (TER: edits) has many
    draws with |d*| = |d|, and without them p is too small: of two equal systems it calls more than a share α
    different at level α. `ties` is the share of such draws; p − ties is sacrebleu's p.
    """

    difference: float
    """The first system's measure minus the second's."""
    p: float
    samples: int
    ties: float = 0.0
    """The part of p that comes from draws exactly as large as the difference; sacrebleu leaves it out."""


def paired_bootstrap(
    first: SummedMeasure, second: SummedMeasure, *, samples: int = SAMPLES, seed: int = 0
) -> PairedTest:
    """Draw the texts again, the same ones for both."""
    _paired(first, second)
    samples, seed = draws(samples, seed)
    difference = first.value - second.value
    drawn_B = np.concatenate(
        [first.drawn(times_BN) - second.drawn(times_BN) for times_BN in redrawn(len(first), samples, seed)]
    )
    return _test(difference, drawn_B - difference)


def approximate_randomisation(
    first: SummedMeasure, second: SummedMeasure, *, samples: int = SAMPLES, seed: int = 0
) -> PairedTest:
    """Let the outputs of each text change sides."""
    a_NK, b_NK = _paired(first, second)
    samples, seed = draws(samples, seed)
    dice, found = np.random.default_rng(seed), list[Counts]()
    part = max(1, CHUNK // len(first))
    for start in range(0, samples, part):
        stays_BN = dice.integers(0, 2, size=(min(part, samples - start), len(first))).astype(float)
        moved_BN = 1 - stays_BN
        a_BK, b_BK = stays_BN @ a_NK + moved_BN @ b_NK, moved_BN @ a_NK + stays_BN @ b_NK
        found.append(
            np.array([first.of_sums(a) - second.of_sums(b) for a, b in zip(a_BK, b_BK, strict=True)])
        )
    return _test(first.value - second.value, np.concatenate(found))


def _test(difference: float, drawn_B: Counts) -> PairedTest:
    least = abs(difference) - ROUNDING * max(1.0, abs(difference))
    # NaN is no less: a draw that cannot be measured speaks against a difference, not for it.
    as_large = int((~(np.abs(drawn_B) < least)).sum())
    larger = int((~(np.abs(drawn_B) <= 2 * abs(difference) - least)).sum())
    draws_and_one = 1 + len(drawn_B)
    ties = (as_large - larger) / draws_and_one
    return PairedTest(difference, (1 + as_large) / draws_and_one, len(drawn_B), ties)


def _paired(first: SummedMeasure, second: SummedMeasure) -> tuple[Counts, Counts]:
    a_NK, b_NK = checked(first), checked(second)
    if a_NK.shape != b_NK.shape:
        raise ValueError(
            f"the systems have {len(a_NK)} and {len(b_NK)} texts, of {a_NK.shape[1]} and {b_NK.shape[1]} "
            "counts: a paired test needs the same measure of the same texts of both"
        )
    return a_NK, b_NK
