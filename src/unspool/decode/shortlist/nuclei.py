"""The rules that rank the tokens and keep a given mass, found without sorting the vocabulary.

    top-p     key(x) = log p(x) − log max p       mass p
    typical   key(x) = −|−log p(x) − H|           mass τ
    edge = max { key(x) : Σ_{key(y) ≥ key(x)} p(y) ≥ mass }

The rules themselves, their papers and their ties are told where they are defined, in `transforms`; rows that
are already short are asked there.

Three steps, each exact:
1. Tokens of p < (1 − mass)/W weigh less than 1 − mass all together, so the edge is not below the key that
   every other token reaches: a floor.
2. The masses of 1,024 equal intervals of keys between 0 and the floor are summed; the edge lies in the
   interval where their cumulative sum reaches the mass.
3. Only the tokens of that interval, a few hundred at most as a rule, are sorted.
Masses are summed in double precision.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms.top_p import TopP
from unspool.decode.transforms.typical import Typical

INTERVALS = 1024
SHORT = 1024
"""Rows up to this length are ranked faster than they are divided into intervals."""
Floats = NDArray[np.float32]


def top_p(rule: TopP, rows: Shortlist) -> Shortlist:
    """The nucleus: of the tokens tied at its edge, as many as are needed, the lower ids first."""
    if rows.score_NW.shape[1] <= SHORT or rule.p == 1:
        return rows.keep(rule.keeps(rows.score_NW).numpy())
    key_NW = rows.score_NW - rows.peak_N[:, None]
    edges = _edges(rows, key_NW, rule.p, _negligible(rows, rule.p) - rows.peak_N)
    keep_NW = _reaching(key_NW, edges)
    for row, (edge, surplus) in enumerate(edges):
        if surplus:
            keep_NW[row, np.flatnonzero(key_NW[row].numpy() == edge)[-surplus:]] = False
    return rows.keep(keep_NW)


def typical(rule: Typical, rows: Shortlist) -> Shortlist:
    """The locally typical set, with all that tie at its edge."""
    if rows.score_NW.shape[1] <= SHORT or rule.tau == 1:
        return rows.keep(rule.keeps(rows.score_NW).numpy())
    # −log p − H = −(score − centre)
    centre_N = rows.scale_N - rows.entropy_N
    key_NW = (rows.score_NW - centre_N.float()[:, None]).abs_().neg_()
    floor_N = -(_negligible(rows, rule.tau) - centre_N).abs().maximum((rows.peak_N - centre_N).abs())
    return rows.keep(_reaching(key_NW, _edges(rows, key_NW, rule.tau, floor_N)))


def _negligible(rows: Shortlist, mass: float) -> Tensor:
    """(N): a score below which all tokens together weigh less than 1 − mass, by half for what is rounded."""
    return rows.scale_N + math.log((1 - mass) / (2 * rows.score_NW.shape[1]))


def _reaching(key_NW: Tensor, edges: list[tuple[float, int]]) -> NDArray[np.bool_]:
    keep_NW: NDArray[np.bool_] = key_NW.numpy() >= np.array([[edge] for edge, _ in edges], dtype=np.float32)
    return keep_NW


def _edges(rows: Shortlist, key_NW: Tensor, mass: float, floor_N: Tensor) -> list[tuple[float, int]]:
    """For every row, the key where the mass is reached, and how many more tokens have it than that takes."""
    interval_NW = (key_NW * (INTERVALS / floor_N).float()[:, None]).clamp_(max=INTERVALS).int().numpy()
    mass_N = (mass * rows.total_N).tolist()
    each = zip(key_NW.numpy(), rows.weight_NW.numpy(), interval_NW, mass_N, strict=True)
    return [_edge(*row) for row in each]


def _edge(key_W: Floats, weight_W: Floats, interval_W: NDArray[np.int32], mass: float) -> tuple[float, int]:
    near_W = interval_W < INTERVALS
    # Where most tokens are below the floor, adding each of them to the same last sum would take longest.
    if 2 * np.count_nonzero(near_W) < len(key_W):
        column = np.flatnonzero(near_W)
        key_W, weight_W, interval_W = key_W[column], weight_W[column], interval_W[column]
    upto_I = np.bincount(interval_W, weight_W).cumsum()
    mass = min(mass, float(upto_I[-1]))
    here = int(np.searchsorted(upto_I, mass))
    before = float(upto_I[here - 1]) if here else 0.0
    column = np.flatnonzero(interval_W == here)
    column = column[np.argsort(-key_W[column])]
    upto_C = weight_W[column].cumsum(dtype=np.float64) + before
    last = min(int(np.searchsorted(upto_C, mass)), int(np.count_nonzero(weight_W[column])) - 1)
    edge = float(key_W[column[last]])
    return edge, int(np.count_nonzero(key_W[column[last + 1 :]] == edge))
