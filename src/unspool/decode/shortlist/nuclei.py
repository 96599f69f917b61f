"""The rules that rank the tokens and keep a given mass, found without sorting the vocabulary.

    top-p     key(x) = s(x)                          mass p
    typical   key(x) = −|s(x) − c|,  c = s̄ = Σ p·s   mass τ          for  −log p(x) − H = c − s(x)
    edge = max { key(x) : Σ_{key(y) ≥ key(x)} p(y) ≥ mass }

The rules themselves, their papers and their ties are told where they are defined, in `transforms`.

Tokens of p < (1 − mass)/W weigh less than 1 − mass all together, so the edge is not below the key that every
other token reaches: a floor. Above it, `mass_edge` looks for the edge; short rows are sorted.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.decode.shortlist.certainty import ROUNDING, doubt
from unspool.decode.shortlist.mass_edge import INTERVALS, Edge, mass_edge
from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms.nucleus import TopP, Typical

SHORT = 1024
"""Rows up to this length are sorted faster than they are divided into intervals."""
KEYS = 1e-7
"""Of a key's parts: what single precision is off."""
Floats = NDArray[np.float32]


def top_p(rule: TopP, rows: Shortlist) -> Shortlist:
    """The nucleus: of the tokens tied at its edge, as many as are needed, the lower ids first."""
    if rule.p == 1:
        return rows.alive()
    mass_N = (rule.p * rows.exact_total_N).numpy()
    off_N = doubt(rule.p) * rows.exact_total_N.numpy()
    score_NW = rows.score_NW.numpy()
    if score_NW.shape[1] <= SHORT:
        ranked_NW = np.argsort(-score_NW, axis=-1, kind="stable")
        weight_NW = np.take_along_axis(rows.weight_NW.numpy(), ranked_NW, -1).astype(np.float64)
        upto_NW = weight_NW.cumsum(axis=-1)
        first_NW = (upto_NW - weight_NW < mass_N[:, None]) & (weight_NW > 0)
        keep_NW = np.zeros_like(first_NW)
        np.put_along_axis(keep_NW, ranked_NW, first_NW, -1)
        near_N = np.abs(upto_NW - mass_N[:, None]).min(axis=-1)
        return rows.keep(keep_NW, near_N > off_N)
    edges = _edges(rows, rows.score_NW, rows.peak_N, mass_N, _negligible(rows, rule.p))
    keep_NW = _reaching(score_NW, edges)
    sure_N = np.zeros(len(edges), np.bool_)
    for row, (edge, mass, off) in enumerate(zip(edges, mass_N.tolist(), off_N.tolist(), strict=True)):
        needed, each = edge.needed(mass), edge.here / edge.ties
        upto = edge.before + needed * each
        sure_N[row] = upto - mass > off and mass - (upto - each) > off
        if needed < edge.ties:
            keep_NW[row, np.flatnonzero(score_NW[row] == edge.key)[needed:]] = False
    return rows.keep(keep_NW, sure_N)


def typical(rule: Typical, rows: Shortlist) -> Shortlist:
    """The locally typical set, with all that tie at its edge."""
    if rule.tau == 1:
        return rows.alive()
    centre_N = rows.mean_N
    key_NW = (rows.score_NW - centre_N.float()[:, None]).abs_().neg_()
    mass_N = (rule.tau * rows.exact_total_N).numpy()
    if key_NW.shape[1] <= SHORT:
        edges = [
            mass_edge(key_W, weight_W, np.zeros(len(key_W), np.int32), mass)
            for key_W, weight_W, mass in zip(key_NW.numpy(), rows.weight_NW.numpy(), mass_N, strict=True)
        ]
    else:
        least_N = _negligible(rows, rule.tau)
        floor_N = -(least_N - centre_N).abs().maximum((rows.peak_N - centre_N).abs())
        edges = _edges(rows, key_NW, torch.zeros_like(rows.peak_N), mass_N, floor_N)
    keep_NW = _reaching(key_NW.numpy(), edges)
    off_N = doubt(rule.tau) * rows.exact_total_N.numpy()
    before_N, here_N = np.array([edge.before for edge in edges]), np.array([edge.here for edge in edges])
    sure_N = (before_N + off_N < mass_N) & (mass_N < before_N + here_N - off_N)
    return rows.keep(keep_NW, sure_N & _ordered(rows, key_NW.numpy(), edges))


def _ordered(rows: Shortlist, key_NW: Floats, edges: list[Edge]) -> NDArray[np.bool_]:
    """(N): whether the tokens that reach the edge are the nearer ones, although the centre may be off.

    On one side of the centre keys are in the order of the scores, however rounded; a token on the other side
    than that at the edge must be nearer or farther by twice what the centre is off.
    """
    sure_N = np.ones(len(edges), np.bool_)
    off_N = (3 * ROUNDING * (rows.peak_N - rows.mean_N)).tolist()
    each = zip(rows.score_NW.numpy(), key_NW, edges, rows.mean_N.tolist(), off_N, strict=True)
    for row, (score_W, key_W, edge, centre, off) in enumerate(each):
        span = 2 * (off + KEYS * (abs(centre) - edge.key))
        column = np.flatnonzero(key_W >= edge.key - 2 * span)  # for most tokens that is all to ask
        column = column[np.abs(key_W[column] - np.float32(edge.key)) <= span]
        score, key = score_W[column].astype(np.float64), key_W[column]
        here = score[key == edge.key]
        nearer = np.abs(here[0] - centre) - np.abs(score - centre)
        clear = np.where(key >= edge.key, nearer, -nearer) > 2 * off
        same_side = (score > centre) == (here[0] > centre)
        sure_N[row] = bool((here == here[0]).all()) and bool((clear | same_side).all())
    return sure_N


def _negligible(rows: Shortlist, mass: float) -> Tensor:
    """(N): a score below which all tokens together weigh less than 1 − mass, by half for what is rounded."""
    return rows.scale_N + math.log((1 - mass) / (2 * rows.score_NW.shape[1]))


def _reaching(key_NW: Floats, edges: list[Edge]) -> NDArray[np.bool_]:
    keep_NW: NDArray[np.bool_] = key_NW >= np.array([[edge.key] for edge in edges], dtype=np.float32)
    return keep_NW


def _edges(
    rows: Shortlist, key_NW: Tensor, top_N: Tensor, mass_N: NDArray[np.float64], floor_N: Tensor
) -> list[Edge]:
    """For every row, the key where the mass is reached."""
    below_NW = key_NW - top_N[:, None]
    scale_N = INTERVALS / (floor_N - top_N)
    interval_NW = (below_NW * scale_N.float()[:, None]).clamp_(max=INTERVALS).int().numpy()
    each = zip(key_NW.numpy(), rows.weight_NW.numpy(), interval_NW, mass_N.tolist(), strict=True)
    return [mass_edge(*row) for row in each]
