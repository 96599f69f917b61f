"""One next-token distribution, prepared once for all tests on it: its head in order, its tail in sums.

    κ:  Σⱼ min(1, κ p̂ⱼ) = m        mass from rank r on:  Σ_{j ≥ r} p̂ⱼ        squares:  Σ_{j ≥ r} p̂ⱼ²

Nearly every test is decided by the few thousand most probable tokens, so that nothing here sorts the whole
vocabulary: the head is partitioned off and sorted, the rest is only summed.
"""

from __future__ import annotations

from math import isfinite

import numpy as np

from unspool.basis.arrays import Array, Indices
from unspool.basis.kappa_rule import from_each_rank_on, kappa_of_sorted

HEAD = 1024
# One of so many tokens is looked at to find a threshold for the head.
STRIDE = 16
# Squares of κp̂ must fit float32: where κ is larger, tokens below 10⁻²¹ count as nothing in the search.
LARGEST = 1e12


class Distribution:
    """p̂ with its head sorted: `order_N` are its N most probable tokens, `head_N` their probabilities."""

    def __init__(self, p_V: Array, m: int, head: int = HEAD) -> None:
        self.p = p_V
        self.vocabulary = len(p_V)
        self.m = m
        self.support = int(np.count_nonzero(p_V > 0))
        self._rank_V = np.full(self.vocabulary, self.vocabulary, dtype=np.int32)
        self.order_N: Indices = np.empty(0, dtype=np.intp)
        self.rest_V: Array = p_V.copy()
        """p̂ without its head."""
        self.extend(max(head, m))
        kappa = kappa_of_sorted(self.head_N, self.mass_N, m)
        # With fewer tokens than constraints every leverage is 1: all weights are p̂², κ is as good as 1/min p̂.
        self.kappa = min(kappa if isfinite(kappa) else float(1 / self.head_N[-1]), LARGEST)

    def extend(self, head: int) -> None:
        """Sort more of the distribution, if there is more; ranks stay what they were."""
        known, n = len(self.order_N), min(head, self.support)
        if known >= n:
            return
        more_N = _largest(self.rest_V, n - known)
        self.order_N = np.concatenate([self.order_N, more_N])
        self.head_N: Array = self.p[self.order_N]
        self.rest_V[more_N] = 0
        rest_V = self.rest_V
        self.mass_N = from_each_rank_on(self.head_N, float(rest_V.sum()))
        self.squares_N = from_each_rank_on(self.head_N * self.head_N, float(rest_V @ rest_V))
        self._rank_V[more_N] = np.arange(known, n, dtype=np.int32)

    def rank(self, i: int) -> int:
        """How many tokens are more probable than i; the size of the vocabulary where i is not in the head."""
        return int(self._rank_V[i])

    def ranks(self, tokens_Q: Indices) -> Indices:
        """`rank` of several tokens."""
        return self._rank_V[tokens_Q].astype(np.intp)

    def sample_beyond(self, n: int, size: int) -> tuple[Indices, Array]:
        """About `size` tokens of rank ≥ n, spread evenly along their mass, and the share each stands for.

        Their weighted sums stand for the tail's. Nothing is random: the same p̂ gives the same sample.
        """
        if n >= self.support or not self.mass_N[n] > 0:
            return np.empty(0, dtype=np.intp), np.empty(0)
        rest_V = self.p.copy()
        rest_V[self.order_N[:n]] = 0
        mass_V = rest_V.cumsum()
        marks_S = (np.arange(size) + 0.5) * (mass_V[-1] / size)
        tokens_S, counts_S = np.unique(np.searchsorted(mass_V, marks_S), return_counts=True)
        return tokens_S, counts_S * (mass_V[-1] / size)


def _largest(values_V: Array, n: int) -> Indices:
    """Where the n largest values stand, sorted; found among those above a threshold that a sample gives."""
    sample_S = values_V[::STRIDE]
    above = min(len(sample_S), n // STRIDE + n // (2 * STRIDE) + 16)
    least = np.partition(sample_S, len(sample_S) - above)[len(sample_S) - above]
    among_N = np.flatnonzero(values_V >= least)
    if len(among_N) < n:
        among_N = np.arange(len(values_V))
    values_N = values_V[among_N]
    if len(among_N) > n:
        top_N = np.argpartition(values_N, len(values_N) - n)[len(values_N) - n :]
        among_N, values_N = among_N[top_N], values_N[top_N]
    return among_N[np.argsort(-values_N)]
