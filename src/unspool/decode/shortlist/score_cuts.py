"""The rules that compare a token's score or weight with a threshold: no sort, one pass.

    top-k     s ≥ s₍ₖ₎       min-p   s ≥ max s + log m             top-nσ   s ≥ max s − n·σ
    epsilon   p ≥ ε          eta     p ≥ min(η, √η·e^(−H))         top-a    p ≥ a · (max p)²

with s the scores (`rows`). The rules themselves, their papers and their ties are told where they are defined,
in `transforms`; the best token always stays.

Top-k: of the maxima of k or more disjoint blocks, the k-th largest is a floor under the k-th largest of the
row. What reaches that floor is little more than k tokens; only these are ranked.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unspool.decode.shortlist.certainty import BLOCKS, ROUNDING
from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms.thresholds import Epsilon, Eta, MinP, TopA, TopK, TopNSigma

BLOCK = 64
ALIVE = float(np.finfo(np.float32).min)
"""The lowest score that is not −∞."""


def top_k(rule: TopK, rows: Shortlist) -> Shortlist:
    """The k best of every row, and what ties with the last of them."""
    if rule.k > rows.vocabulary:
        rule.keeps(rows.whole())  # refuses, in its own words
    N, W = rows.score_NW.shape
    if 2 * rule.k <= W // BLOCK:
        best_NB = rows.score_NW[:, : W - W % BLOCK].reshape(N, -1, BLOCK).amax(dim=-1)
        rows = _reaching(rows, _largest(best_NB, rule.k))
    if rule.k >= rows.score_NW.shape[1]:
        return rows
    return _reaching(rows, _largest(rows.score_NW, rule.k))


def min_p(rule: MinP, rows: Shortlist) -> Shortlist:
    """At least m times as probable as the best."""
    return _reaching(rows, rows.peak_N.double() + _log(rule.m))


def top_n_sigma(rule: TopNSigma, rows: Shortlist) -> Shortlist:
    """Within n standard deviations of the best."""
    sigma_N, off_N = _deviation(rows.score_NW - rows.peak_N[:, None])
    return _reaching(rows, rows.peak_N - rule.n * sigma_N, rule.n * off_N)


def epsilon(rule: Epsilon, rows: Shortlist) -> Shortlist:
    """Of probability ε or more."""
    return _reaching(rows, rows.scale_N + _log(rule.epsilon), BLOCKS)


def eta(rule: Eta, rows: Shortlist) -> Shortlist:
    """Of probability η or more, or √η · e^(−H) where that is less."""
    floor_N = torch.minimum(rows.scale_N + _log(rule.eta), rows.mean_N + _log(rule.eta) / 2)
    return _reaching(rows, floor_N, BLOCKS * (1 + rows.peak_N - rows.mean_N))


def top_a(rule: TopA, rows: Shortlist) -> Shortlist:
    """At least a · max p times as probable as the best."""
    return _reaching(rows, 2 * rows.peak_N - rows.scale_N + _log(rule.a), BLOCKS)


def _largest(score_NW: Tensor, k: int) -> Tensor:
    """(N): the k-th largest."""
    return torch.from_numpy(np.partition(score_NW.numpy(), -k, axis=-1)[:, -k])


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _reaching(rows: Shortlist, floor_N: Tensor, off_N: Tensor | float = 0.0) -> Shortlist:
    """Only the scores at the floor or above, and the best; the floor may be off by so much.

    A row is sure where no score lies that near to its floor.
    """
    top_N = rows.peak_N.double()
    low_N, high_N = floor_N.double() - off_N, floor_N.double() + off_N
    low_N, high_N = torch.where(low_N >= top_N, top_N, torch.stack([low_N, high_N]))
    score_NW = rows.score_NW.numpy()
    keep_NW = score_NW >= up(low_N.numpy())[:, None]
    if isinstance(off_N, float) and off_N == 0:
        return rows.keep(keep_NW)
    return rows.keep(keep_NW, _counts(keep_NW) == _counts(score_NW >= up(high_N.numpy())[:, None]))


def _counts(mask_NW: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(N): how many are True, row by row, for which numpy has a quicker way than for all rows at once."""
    return np.array([np.count_nonzero(mask_W) for mask_W in mask_NW])


def up(floor_N: NDArray[np.float64]) -> NDArray[np.float32]:
    """The lowest numbers of single precision that are not below, nor −∞."""
    found_N = floor_N.astype(np.float32)
    found_N = np.where(found_N < floor_N, np.nextafter(found_N, np.float32(np.inf)), found_N)
    return np.maximum(found_N, np.float32(ALIVE))


def _deviation(below_NW: Tensor) -> tuple[Tensor, Tensor]:
    """(N): the standard deviation over the tokens not yet cut, and by how much it may be off."""
    mean_N, square_N = _moments(below_NW, below_NW.shape[1])
    if not bool(mean_N.isfinite().all()):
        alive_NW = below_NW >= ALIVE
        mean_N, square_N = _moments(torch.where(alive_NW, below_NW, 0.0), alive_NW.sum(dim=-1))
    sigma_N = (square_N - mean_N.square()).clamp(min=0).sqrt()
    # The squares are rounded: their mean is off by some of itself, however little is left of it in σ².
    return sigma_N, (sigma_N.square() + ROUNDING * square_N).sqrt() - sigma_N


def _moments(score_NW: Tensor, size: int | Tensor) -> tuple[Tensor, Tensor]:
    sum_N = score_NW.sum(dim=-1, dtype=torch.float64)
    return sum_N / size, score_NW.square().sum(dim=-1, dtype=torch.float64) / size
