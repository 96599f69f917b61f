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
