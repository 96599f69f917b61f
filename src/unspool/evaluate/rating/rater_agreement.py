"""Agreement of raters (Krippendorff's α), and strengths of systems from preferences (Bradley–Terry).

    α = 1 − D_o / D_e,    D_o = Σ_ck o_ck δ²_ck / n,    D_e = Σ_ck n_c n_k δ²_ck / (n (n − 1))
    o_ck = Σ_u (pairs of ratings c, k in unit u) / (m_u − 1),   n_c = Σ_k o_ck,   n = Σ_c n_c
    nominal:  δ²_ck = [c ≠ k]
    ordinal:  δ²_ck = ( Σ_{g = c … k} n_g − (n_c + n_k)/2 )²

Krippendorff 2011 (papers.bib: krippendorff2011computing). Symbols: u is an item, m_u its number of ratings.

1 is full agreement, 0 chance, below 0 worse than chance. Items with fewer than two ratings do not count. α is
NaN if all ratings are equal. α is a function of the summed o_ck, so `SummedMeasure` can bootstrap it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import nan

import numpy as np
from scipy.sparse.csgraph import connected_components

from unspool.arguments import as_number, items, one_of, shown
from unspool.evaluate.significance import Counts, SummedMeasure


def alpha(
    units: Sequence[Sequence[Hashable]], values: Sequence[Hashable], *, level: str = "nominal"
) -> float:
    """Compute Krippendorff's α of the ratings of each item, in any order, which must be among `values`.

    For `level="ordinal"`, `values` must be in order.
    """
    return alpha_measure(units, values, level=level).value


def alpha_measure(
    units: Sequence[Sequence[Hashable]], values: Sequence[Hashable], *, level: str = "nominal"
) -> SummedMeasure:
    """Compute α as a function of sums, for bootstrap intervals."""
    one_of("level", level, DISTANCES)
    index = {value: at for at, value in enumerate(_ratings("values", values, "a list of possible ratings"))}
    rows = [_coincidences(ratings, index) for ratings in items("units", units, "the ratings of each item")]
    if not rows:
        raise ValueError("units is empty: give the ratings of at least one item")
    distance, size = DISTANCES[level], len(index)
    return SummedMeasure(np.array(rows), lambda sums: _alpha(sums.reshape(size, size), distance))


def _coincidences(ratings: Sequence[Hashable], index: dict[Hashable, int]) -> Counts:
    """Return o_ck of one item, flattened."""
    count_C = np.zeros(len(index))
    for rating in _ratings("units", ratings, "the ratings of each item"):
        if rating not in index:
            raise ValueError(f"the rating {shown(rating)} is not among the values {shown(tuple(index))}")
        count_C[index[rating]] += 1
    pairs_CC: Counts = np.outer(count_C, count_C) - np.diag(count_C)
    return pairs_CC.ravel() / max(float(count_C.sum()) - 1, 1.0)


def _ratings(name: str, values: Sequence[Hashable], wanted: str) -> tuple[Hashable, ...]:
    ratings = items(name, values, wanted)
    for rating in ratings:
        if not isinstance(rating, Hashable):
            raise TypeError(f"{shown(rating)} is not a rating: give numbers or strings")
    return ratings


def _alpha(o_CC: Counts, distance: Callable[[Counts], Counts]) -> float:
    n_C = o_CC.sum(axis=0)
    n = n_C.sum()
    if n < 2:
        return nan
    delta_CC = distance(n_C)
    expected = float((np.outer(n_C, n_C) * delta_CC).sum())
    return 1 - float((n - 1) * (o_CC * delta_CC).sum()) / expected if expected else nan


def _ordinal(n_C: Counts) -> Counts:
    midrank_C = n_C.cumsum() - n_C / 2
    squares: Counts = (midrank_C[:, None] - midrank_C[None, :]) ** 2
    return squares


DISTANCES: dict[str, Callable[[Counts], Counts]] = {
    "nominal": lambda n_C: 1 - np.eye(len(n_C)),
    "ordinal": _ordinal,
}


PRIOR = 0.5
MAX_ITERATIONS = 10_000
TOLERANCE = 1e-10
MAX_WINS = 1e9


def bradley_terry_strengths(wins: Sequence[Sequence[float]], *, prior: float = PRIOR) -> tuple[float, ...]:
    """Estimate strengths, whose product is 1; wins[i][j] is how often i was preferred to j.

        P(i beats j) = π_i / (π_i + π_j)
        π_i ← W_i / Σ_{j≠i} n_ij / (π_i + π_j),     until convergence;   Π π_i = 1

    Bradley & Terry 1952 (papers.bib: bradley1952rank), by the minorisation–maximisation of Hunter 2004, eq. 3
    (papers.bib: hunter2004mm). W_i are the wins of i, n_ij the comparisons of i and j; a tie is half a win
    for each.

    A system without losses would have an infinite strength, so `prior` wins are added to both sides of every
    compared pair. With prior=0 the estimate is the maximum of the likelihood, if it exists.
    """
    rows = [items("wins", row, "a square table of numbers") for row in items("wins", wins, "a square table")]
    if len(rows) < 2 or any(len(row) != len(rows) for row in rows):
        raise ValueError(f"wins is {shown(wins)}, but must be a square table of at least two systems")
    advice = "It is a number of wins."
    table = [
        [as_number("wins", count, at_least=0, at_most=MAX_WINS, advice=advice) for count in row]
        for row in rows
    ]
    prior = as_number("prior", prior, at_least=0, at_most=MAX_WINS, advice="0.5 is usual; 0 adds nothing.")
    return tuple(map(float, strengths(np.array(table, dtype=float), prior)))


def strengths(wins_SS: Counts, prior: float = PRIOR) -> Counts:
    """`bradley_terry_strengths` of an array, without checks of its entries."""
    wins_SS = wins_SS * (1 - np.eye(len(wins_SS)))
    met_SS = (wins_SS + wins_SS.T) > 0
    wins_SS = wins_SS + prior * met_SS
    # Every system must be reachable from every other one (Ford 1957): the condition for a maximum.
    if connected_components(wins_SS > 0, connection="strong")[0] > 1:
        raise ValueError(
            "the comparisons do not connect all systems (with prior=0, each must also have lost once): "
            "compare more pairs, or give a prior above 0"
        )
    times_SS, won_S = wins_SS + wins_SS.T, wins_SS.sum(axis=1)
    pi_S = np.ones(len(wins_SS))
    for _ in range(MAX_ITERATIONS):
        new_S: Counts = won_S / (times_SS / (pi_S[:, None] + pi_S[None, :])).sum(axis=1)
        new_S /= np.exp(np.log(new_S).mean())
        if np.abs(np.log(new_S / pi_S)).max() < TOLERANCE:
            return new_S
        pi_S = new_S
    return pi_S
