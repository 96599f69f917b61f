"""Bradley–Terry: the strengths of systems from which of two was preferred how often.

    P(i beats j) = π_i / (π_i + π_j)
    π_i ← W_i / Σ_{j≠i} n_ij / (π_i + π_j),     until nothing moves;   Π π_i = 1

Bradley & Terry 1952 (papers.bib: bradley1952rank), by the minorisation–maximisation of Hunter 2004, eq. 3
(papers.bib: hunter2004mm). W_i are the wins of i, n_ij the comparisons of i and j; a tie is half a win for
each.

A system that always won would have an infinite strength. `prior` wins are therefore added to both sides of
every pair that was compared; with 0 the estimate is the maximum of the likelihood, where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unspool.decode.arguments import as_number, items, shown
from unspool.evaluate.summed_measure import Counts

PRIOR = 0.5
ROUNDS = 10_000
CLOSE = 1e-10
MOST = 1e9
"""Wins."""


def bradley_terry_strengths(wins: Sequence[Sequence[float]], *, prior: float = PRIOR) -> tuple[float, ...]:
    """From a square table: wins[i][j] is how often i was preferred to j. Their product is 1."""
    rows = [items("wins", row, "a square table of numbers") for row in items("wins", wins, "a square table")]
    if len(rows) < 2 or any(len(row) != len(rows) for row in rows):
        raise ValueError(f"wins is {shown(wins)}, but must be a square table of two systems or more")
    advice = "It is a number of wins."
    table = [[as_number("wins", it, at_least=0, at_most=MOST, advice=advice) for it in row] for row in rows]
    prior = as_number("prior", prior, at_least=0, at_most=MOST, advice="0.5 is usual; 0 adds nothing.")
    return tuple(map(float, strengths(np.array(table, dtype=float), prior)))


def strengths(wins_SS: Counts, prior: float = PRIOR) -> Counts:
    """The same of an array, unchecked but for whether there is an answer."""
    wins_SS = wins_SS * (1 - np.eye(len(wins_SS)))
    met_SS = (wins_SS + wins_SS.T) > 0
    wins_SS = wins_SS + prior * met_SS
    if not _connected(wins_SS > 0):
        raise ValueError(
            "the systems cannot be ordered: some were never compared, not even by way of others, or (with "
            "prior=0) some never lost. Compare more pairs, or give a prior above 0."
        )
    times_SS, won_S = wins_SS + wins_SS.T, wins_SS.sum(axis=1)
    pi_S = np.ones(len(wins_SS))
    for _ in range(ROUNDS):
        new_S: Counts = won_S / (times_SS / (pi_S[:, None] + pi_S[None, :])).sum(axis=1)
        new_S /= np.exp(np.log(new_S).mean())
        if np.abs(np.log(new_S / pi_S)).max() < CLOSE:
            return new_S
        pi_S = new_S
    return pi_S


def _connected(edges_SS: NDArray[np.bool_]) -> bool:
    """Whether every system can be reached from every other one (Ford 1957: only then is there a maximum)."""
    reach_SS = edges_SS | np.eye(len(edges_SS), dtype=bool)
    for _ in range(len(edges_SS)):
        reach_SS = (reach_SS.astype(int) @ reach_SS.astype(int)) > 0
    return bool(reach_SS.all())
