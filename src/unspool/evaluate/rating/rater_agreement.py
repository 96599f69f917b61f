"""Krippendorff's α: how far raters agree, beyond what chance would have them agree.

    α = 1 − D_o / D_e,    D_o = Σ_ck o_ck δ²_ck / n,    D_e = Σ_ck n_c n_k δ²_ck / (n (n − 1))
    o_ck = Σ_u (pairs of ratings c, k in unit u) / (m_u − 1),   n_c = Σ_k o_ck,   n = Σ_c n_c
    nominal:  δ²_ck = [c ≠ k]
    ordinal:  δ²_ck = ( Σ_{g = c … k} n_g − (n_c + n_k)/2 )²

Krippendorff 2011 (papers.bib: krippendorff2011computing). Symbols: u is an item, m_u how many rated it.

1 is full agreement, 0 what chance gives, below 0 worse. Items with fewer than two ratings do not count. Where
every rating is the same there was nothing to agree on, and α does not exist (not a number). α is a function
of the summed o_ck, so that a bootstrap over items is one of `SummedMeasure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.decode.arguments import as_number, items, one_of, shown
from unspool.evaluate.summed_measure import Counts, SummedMeasure


def alpha(
    units: Sequence[Sequence[Hashable]], values: Sequence[Hashable], *, level: str = "nominal"
) -> float:
    """Of the ratings of each item (the raters' order does not matter), which are among `values`.

    For `level` "ordinal", the values stand in their order.
    """
    return alpha_measure(units, values, level=level).value


def alpha_measure(
    units: Sequence[Sequence[Hashable]], values: Sequence[Hashable], *, level: str = "nominal"
) -> SummedMeasure:
    """α with what each item adds to it: for bootstrap intervals."""
    one_of("level", level, DISTANCES)
    scale = items("values", values, "a list of the values that a rating may have")
    place = {value: at for at, value in enumerate(_hashable(scale))}
    rows = [_coincidences(ratings, place) for ratings in items("units", units, "the ratings of each item")]
    if not rows:
        raise ValueError("there is no item to agree on: give the ratings of one or more")
    distance, size = DISTANCES[level], len(place)
    return SummedMeasure(np.array(rows), lambda sums: _alpha(sums.reshape(size, size), distance))


def _coincidences(ratings: Any, place: dict[Hashable, int]) -> Counts:
    """o_ck of one item, flat."""
    said = Counter(_hashable(items("units", ratings, "the ratings of each item")))
    if unknown := [value for value in said if value not in place]:
        raise ValueError(f"{shown(unknown[0])} is a rating, but none of the values {shown(tuple(place))}")
    count_C = np.zeros(len(place))
    for value, count in said.items():
        count_C[place[value]] = count
    if said.total() < 2:
        return np.zeros(len(place) ** 2)
    pairs_CC = np.outer(count_C, count_C) - np.diag(count_C)
    return (pairs_CC / (said.total() - 1)).ravel()


def _alpha(o_CC: Counts, distance: Callable[[Counts], Counts]) -> float:
    n_C = o_CC.sum(axis=0)
    n = n_C.sum()
    if n < 2:
        return nan
    delta_CC = distance(n_C)
    expected = float((np.outer(n_C, n_C) * delta_CC).sum())
    return 1 - float((n - 1) * (o_CC * delta_CC).sum()) / expected if expected else nan


def _nominal(n_C: Counts) -> Counts:
    return 1 - np.eye(len(n_C))


def _ordinal(n_C: Counts) -> Counts:
    upto_C = n_C.cumsum() - n_C / 2
    squares: Counts = (upto_C[:, None] - upto_C[None, :]) ** 2
    return squares


DISTANCES: dict[str, Callable[[Counts], Counts]] = {"nominal": _nominal, "ordinal": _ordinal}


def _hashable(values: tuple[Any, ...]) -> tuple[Hashable, ...]:
    for value in values:
        try:
            hash(value)
        except TypeError:
            raise TypeError(f"{shown(value)} is no rating: give numbers or words") from None
    return values


# Bradley–Terry: the strengths of systems from which of two was preferred how often.
#
#     P(i beats j) = π_i / (π_i + π_j)
#     π_i ← W_i / Σ_{j≠i} n_ij / (π_i + π_j),     until nothing moves;   Π π_i = 1
#
# Bradley & Terry 1952 (papers.bib: bradley1952rank), by the minorisation–maximisation of Hunter 2004, eq. 3
# (papers.bib: hunter2004mm). W_i are the wins of i, n_ij the comparisons of i and j; a tie is half a win for
# each.
#
# A system that always won would have an infinite strength. `prior` wins are therefore added to both sides of
# every pair that was compared; with 0 the estimate is the maximum of the likelihood, where there is one.


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
