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

from unspool.decode.arguments import items, one_of, shown
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
