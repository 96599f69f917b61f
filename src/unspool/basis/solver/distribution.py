"""One next-token distribution, prepared once for all tests on it: its head in order, its tail in sums.

    κ:  Σⱼ min(1, κ p̂ⱼ) = m        mass from rank r on:  Σ_{j ≥ r} p̂ⱼ        squares:  Σ_{j ≥ r} p̂ⱼ²

Nearly every test is decided by the few thousand most probable tokens, so that nothing here sorts the whole
vocabulary: the head is partitioned off and sorted, the rest is only summed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import numpy as np
from scipy.linalg import qr

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


# The rows of W as float64, from wherever and in whatever precision W lies.


BLOCK = 1024


class Float64Rows:
    """The rows of W as float64, block by block, from wherever W lies: W itself is never converted whole."""

    def __init__(self, W: Any) -> None:
        # A torch tensor keeps its type (numpy has no bfloat16), and a GPU's is copied to the host once.
        torch = hasattr(W, "detach")
        on_host: Any = W.detach().cpu() if torch else np.asarray(W)
        self.W, self.shape = on_host, tuple(on_host.shape)
        self._bfloat16 = str(on_host.dtype) == "torch.bfloat16"
        # The same memory; numpy gathers rows several times faster than torch does.
        self._array = on_host.numpy() if torch and not self._bfloat16 else on_host

    def __getitem__(self, index: Any) -> Array:
        if self._bfloat16:
            converted: Array = self.W[index].double().numpy()
            return converted
        block = self._array[index] if isinstance(index, slice) else self._array.take(index, axis=0)
        return np.asarray(block, dtype=np.float64)

    def blocks(self, index: Indices | None = None) -> Iterator[tuple[slice, Array]]:
        """These rows, or all: in blocks small enough that the conversion stays in the processor's cache."""
        count = self.shape[0] if index is None else len(index)
        for start in range(0, count, BLOCK):
            part = slice(start, min(start + BLOCK, count))
            yield part, self[part if index is None else index[part]]

    def without(self, columns_C: Indices) -> Float64Rows:
        """A copy without some columns."""
        kept = np.setdiff1d(np.arange(self.shape[1]), columns_C)
        return Float64Rows(self.W[:, kept])


# The columns of W in units that float64 can work with: the same question, other numbers.
#
#     W̃ᵀp = W̃ᵀp̂   ⇔   (W̃T)ᵀp = (W̃T)ᵀp̂   for any T that can be inverted; W̃ = [W, 1]
#
# So a column may be scaled, and, since the ones are there, shifted. Both are done only where nothing is
# rounded and where it matters: columns whose squares would overflow or underflow are multiplied by powers of
# two; from a column whose entries are all within a factor of two, and hardly vary, its smallest entry is
# taken off.
#
# A column that others make up to 10⁻¹⁰ of its size is left out: float64 cannot tell what it adds. If it is
# made up exactly (a zero, a duplicate, a constant), the question is the same; if not, it asks for less, and
# what is accepted is accepted rightly.


# Mean squares beyond these are on their way out of float64.
SMALL, LARGE = 1e-200, 1e200
# A column with less variance than this, relative to its mean square, is worth a shift.
STEADY = 1e-6


def in_fair_units(weight: Float64Rows, square_D: Array, mean_D: Array) -> Float64Rows | None:
    """The columns scaled and shifted, None where none has to be; from their mean squares and means.

    NaN or infinite entries are refused.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        variance_D = square_D - mean_D * mean_D
        fair_D = (square_D > SMALL) & (square_D < LARGE)
        steady_D = fair_D & (variance_D < STEADY * square_D)
    if (fair_D & ~steady_D).all():
        return None
    low_D, high_D = _extent(weight)
    size_D = np.maximum(np.abs(low_D), np.abs(high_D))
    power_D = np.where(~fair_D & (size_D > 0), np.frexp(size_D)[1], 0)
    # Between x and 2x, x − y is a number of float64's.
    near_D = np.minimum(np.abs(low_D), np.abs(high_D)) * 2 >= size_D
    one_sign_D = np.sign(low_D) == np.sign(high_D)
    shift_D = np.where(steady_D & near_D & one_sign_D & (low_D < high_D), low_D, 0.0)
    if not (power_D.any() or shift_D.any()):
        return None
    fair_VD = np.empty(weight.shape)
    for part, block in weight.blocks():
        fair_VD[part] = np.ldexp(block - shift_D, -power_D)
    return Float64Rows(fair_VD)


def scaled_alike(weight: Float64Rows, square: float) -> Float64Rows | None:
    """All columns times one power of two, None where that is not needed; from their largest mean square."""
    if SMALL < square < LARGE:
        return None
    low_D, high_D = _extent(weight)
    power = int(np.frexp(max(np.abs(low_D).max(initial=0), np.abs(high_D).max(initial=0)))[1])
    if not power:
        return None
    fair_VD = np.empty(weight.shape)
    for part, block in weight.blocks():
        fair_VD[part] = np.ldexp(block, -power)
    return Float64Rows(fair_VD)


def made_up_by_others(null_MD: Array) -> Indices:
    """Columns that the others make up, one for each vector n with W̃n = 0; the ones are never among them."""
    order_M = qr(null_MD[:-1].T, mode="r", pivoting=True)[1]
    return np.sort(order_M[: null_MD.shape[1]])


def _extent(weight: Float64Rows) -> tuple[Array, Array]:
    """The smallest and the largest entry of each column."""
    low_D, high_D = np.full(weight.shape[1], np.inf), np.full(weight.shape[1], -np.inf)
    for _, block in weight.blocks():
        if not np.isfinite(block).all():
            raise ValueError("W contains NaN or infinite entries; no test is possible on it.")
        low_D, high_D = np.minimum(low_D, block.min(axis=0)), np.maximum(high_D, block.max(axis=0))
    return low_D, high_D
