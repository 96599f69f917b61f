"""A next-token distribution with its head sorted and its tail summed, shared by all tests on it.

    κ:  Σⱼ min(1, κ p̂ⱼ) = m        mass from rank r on:  Σ_{j ≥ r} p̂ⱼ        squares:  Σ_{j ≥ r} p̂ⱼ²

Nearly every test is decided by the few thousand most probable tokens, so the vocabulary is never sorted as a
whole: the head is partitioned off and sorted on demand.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from unspool.basis.arrays import Array, Indices
from unspool.basis.kappa_rule import kappa_from_sorted, suffix_sums

HEAD_SIZE = 1024
# Every SAMPLE_STRIDE-th probability is inspected to estimate a threshold for the head.
SAMPLE_STRIDE = 16
# Squares of κp̂ must fit float32. With this bound, tokens below 10⁻²¹ are ignored by the search.
MAX_KAPPA = 1e12


class Distribution:
    """p̂ and its N most probable tokens `order_N` with their probabilities `head_N`.

    `tail_mass_N[r]` and `tail_squares_N[r]` are Σp̂ and Σp̂² from rank r on.
    """

    def __init__(self, p_V: Array, m: int, head: int = HEAD_SIZE) -> None:
        self.p = p_V
        self.vocabulary = len(p_V)
        self.m = m
        self.support = int(np.count_nonzero(p_V > 0))
        self._rank_V = np.full(self.vocabulary, self.vocabulary, dtype=np.int32)
        self.order_N: Indices = np.empty(0, dtype=np.intp)
        self.tail_V: Array = p_V.copy()
        """p̂ with zeros on the head."""
        self.extend_head(max(head, m))
        kappa = kappa_from_sorted(self.head_N, self.tail_mass_N, m)
        # With fewer tokens than constraints every leverage is 1 and all weights are p̂²: κ = 1/min p̂ does
        # that.
        self.kappa = min(kappa if isfinite(kappa) else float(1 / self.head_N[-1]), MAX_KAPPA)

    def extend_head(self, head: int) -> None:
        """Sort the `head` most probable tokens; known ranks do not change."""
        known, n = len(self.order_N), min(head, self.support)
        if known >= n:
            return
        new_N = _top_indices(self.tail_V, n - known)
        self.order_N = np.concatenate([self.order_N, new_N])
        self.head_N: Array = self.p[self.order_N]
        self.tail_V[new_N] = 0
        tail_V = self.tail_V
        self.tail_mass_N = suffix_sums(self.head_N, float(tail_V.sum()))
        self.tail_squares_N = suffix_sums(self.head_N * self.head_N, float(tail_V @ tail_V))
        self._rank_V[new_N] = np.arange(known, n, dtype=np.int32)

    def ranks(self, tokens_Q: Indices) -> Indices:
        """The number of more probable tokens; the vocabulary size for tokens outside the head."""
        return self._rank_V[tokens_Q].astype(np.intp)

    def sample_tail(self, n: int, size: int) -> tuple[Indices, Array]:
        """About `size` tokens of rank ≥ n, spaced evenly along their mass, and the mass each represents.

        Deterministic: the same p̂ gives the same sample.
        """
        if n >= self.support or not self.tail_mass_N[n] > 0:
            return np.empty(0, dtype=np.intp), np.empty(0)
        tail_V = self.p.copy()
        tail_V[self.order_N[:n]] = 0
        mass_V = tail_V.cumsum()
        marks_S = (np.arange(size) + 0.5) * (mass_V[-1] / size)
        tokens_S, counts_S = np.unique(np.searchsorted(mass_V, marks_S), return_counts=True)
        return tokens_S, counts_S * (mass_V[-1] / size)


def _top_indices(values_V: Array, n: int) -> Indices:
    """Indices of the n largest values, sorted; a strided sample gives the threshold to preselect them."""
    sample_S = values_V[::SAMPLE_STRIDE]
    above = min(len(sample_S), n // SAMPLE_STRIDE + n // (2 * SAMPLE_STRIDE) + 16)
    least = np.partition(sample_S, len(sample_S) - above)[len(sample_S) - above]
    candidate_N = np.flatnonzero(values_V >= least)
    if len(candidate_N) < n:
        candidate_N = np.arange(len(values_V))
    values_N = values_V[candidate_N]
    if len(candidate_N) > n:
        top_N = np.argpartition(values_N, len(values_N) - n)[len(values_N) - n :]
        candidate_N, values_N = candidate_N[top_N], values_N[top_N]
    return candidate_N[np.argsort(-values_N)]
