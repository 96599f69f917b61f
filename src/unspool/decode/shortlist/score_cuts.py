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
from torch import Tensor

from unspool.decode.shortlist.rows import Shortlist
from unspool.decode.transforms.epsilon import Epsilon
from unspool.decode.transforms.eta import Eta
from unspool.decode.transforms.min_p import MinP
from unspool.decode.transforms.top_a import TopA
from unspool.decode.transforms.top_k import TopK
from unspool.decode.transforms.top_n_sigma import TopNSigma

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
    return _reaching(rows, rows.peak_N + (math.log(rule.m) if rule.m > 0 else ALIVE))


def top_n_sigma(rule: TopNSigma, rows: Shortlist) -> Shortlist:
    """Within n standard deviations of the best."""
    return _reaching(rows, rows.peak_N - rule.n * _deviation(rows.score_NW - rows.peak_N[:, None]))


def epsilon(rule: Epsilon, rows: Shortlist) -> Shortlist:
    """Of probability ε or more."""
    return _weighing(rows, rule.epsilon * rows.total_N)


def eta(rule: Eta, rows: Shortlist) -> Shortlist:
    """Of probability η or more, or √η · e^(−H) where that is less."""
    floor_N = (math.sqrt(rule.eta) * (-rows.entropy_N).exp()).clamp(max=rule.eta)
    return _weighing(rows, floor_N * rows.total_N)


def top_a(rule: TopA, rows: Shortlist) -> Shortlist:
    """At least a · max p times as probable as the best."""
    return _weighing(rows, rule.a * rows.best_N.square() / rows.total_N)


def _largest(score_NW: Tensor, k: int) -> Tensor:
    """(N): the k-th largest."""
    return torch.from_numpy(np.partition(score_NW.numpy(), -k, axis=-1)[:, -k])


def _reaching(rows: Shortlist, floor_N: Tensor) -> Shortlist:
    """Only the scores at the floor or above, and above −∞."""
    floor_N1 = floor_N.float().clamp(min=ALIVE).numpy()[:, None]
    return rows.keep(rows.score_NW.numpy() >= floor_N1)


def _weighing(rows: Shortlist, floor_N: Tensor) -> Shortlist:
    """Only the weights at the floor or above, and the largest."""
    floor_N = floor_N.float().minimum(rows.best_N)
    if not bool(floor_N.all()):  # a weight of 0 is what was cut, or as good as
        return rows
    return rows.keep(rows.weight_NW.numpy() >= floor_N.numpy()[:, None])


def _deviation(score_NW: Tensor) -> Tensor:
    """(N): the standard deviation over the tokens not yet cut."""
    mean_N, square_N = _moments(score_NW, score_NW.shape[1])
    if not bool(mean_N.isfinite().all()):
        alive_NW = score_NW >= ALIVE
        mean_N, square_N = _moments(torch.where(alive_NW, score_NW, 0.0), alive_NW.sum(dim=-1))
    return (square_N - mean_N.square()).clamp(min=0).sqrt()


def _moments(score_NW: Tensor, size: int | Tensor) -> tuple[Tensor, Tensor]:
    sum_N = score_NW.sum(dim=-1, dtype=torch.float64)
    return sum_N / size, score_NW.square().sum(dim=-1, dtype=torch.float64) / size
