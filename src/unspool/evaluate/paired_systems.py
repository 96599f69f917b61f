"""Two systems on the same texts: is the difference of a measure more than chance?

Paired bootstrap (Koehn 2004; papers.bib: koehn2004statistical), two-sided, about the difference found:

    d*_b = m(A*_b) − m(B*_b), the same texts of both redrawn;   p = (1 + #{ |d*_b − d| ≥ |d| }) / (1 + B)

Approximate randomisation (Riezler & Maxwell 2005; papers.bib: riezler2005pitfalls): were the systems
alike, who said which of two texts would not matter:

    each text's two outputs change sides with probability ½;   p = (1 + #{ |d*_b| ≥ |d| }) / (1 + B)

The second asks for less, and is wrong less often.

sacrebleu differs in two ways. Its bootstrap test counts one side: its p is about half of ours. Its
randomisation test counts only draws with |d*| > |d|. A measure of whole numbers (TER: edits) has many draws
with |d*| = |d|, and without them p is too small: of two equal systems it calls more than a share α
different at level α. `ties` is the share of such draws; p − ties is sacrebleu's p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unspool.evaluate.bootstrap_interval import CHUNK, SAMPLES, checked, draws, redrawn
from unspool.evaluate.summed_measure import Counts, SummedMeasure

ROUNDING = 1e-12
"""Sums in another order differ by so much: a difference that is equal must count as equal."""


@dataclass(frozen=True)
class PairedTest:
    """The difference of two systems, and how often chance alone makes one as large."""

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
