"""Row lengths: the norm of each token's row of W relative to the rows of competing tokens, for the κ rule.

    ℓᵢ = √(xᵢᵀ G⁻¹ xᵢ / m),   G = ½ I + ½ Σⱼ qⱼ xⱼxⱼᵀ,   qⱼ = mean of min(1, κp̂ⱼ)/m over distributions

x are the whitened rows of solver/whitening.py, (1/V) Σ xxᵀ = I. Half of G weighs all tokens equally, half
weighs them by their mean leverage over the given distributions. The mean of ℓ² in this mixture is 1.

Why: the ℓ₁ Lewis weight of the row p̂ᵢxᵢ is p̂ᵢ·√(xᵢᵀM⁻¹xᵢ), which is κp̂ᵢ for isotropic rows
(solver/lewis_metric.py). M depends on p̂. Replacing it by G, a mean over distributions, reduces W to V
numbers.

Cohen & Peng 2015, §2 (Lewis weights and their fixed point).
papers.bib: cohen2015lewis
Differs from the paper: one round of the fixed point, in a metric that is the same for every distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Array32, as_float64

BLOCK = 4096


@dataclass(frozen=True, eq=False, repr=False)
class RowLengths:
    """ℓ, one number per token. `BasisTest.row_lengths` computes them for a model."""

    values_V: NDArray[Any]

    def __post_init__(self) -> None:
        values_V = as_float64(self.values_V)
        if values_V.ndim != 1 or not len(values_V):
            raise ValueError(f"row lengths have shape {values_V.shape}; expected one per token, (V,)")
        with np.errstate(over="ignore"):  # values beyond float32 become infinite and are rejected below
            kept_V = values_V.astype(np.float32)
        wrong_V = ~(np.isfinite(kept_V) & (kept_V > 0))
        if wrong_V.any():
            i = int(np.argmax(wrong_V))
            raise ValueError(
                f"the row length of token {i} is {values_V[i]}; expected positive, finite numbers from "
                f"BasisTest(W, rank).row_lengths(p)"
            )
        kept_V.setflags(write=False)
        object.__setattr__(self, "values_V", kept_V)

    def for_vocabulary(self, vocabulary: int) -> Array32:
        """ℓ as an array; raises ValueError if the model has another vocabulary size."""
        if len(self.values_V) != vocabulary:
            raise ValueError(
                f"row lengths for {len(self.values_V)} tokens do not fit probabilities of {vocabulary}: use "
                f"BasisTest(W, rank).row_lengths(p) of the same model"
            )
        return self.values_V

    @cached_property
    def _hash(self) -> int:
        return hash(self.values_V.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowLengths) and np.array_equal(self.values_V, other.values_V)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        low, high = self.values_V.min(), self.values_V.max()
        return f"RowLengths({len(self.values_V)} tokens, {low:.2g} … {high:.2g})"


def compute_row_lengths(X_VK: Array32, share_V: Array) -> RowLengths:
    """ℓ from whitened rows and the (unnormalised) leverage shares q."""
    vocabulary, m = X_VK.shape
    q_V = share_V / share_V.sum()
    metric_KK = 0.5 * np.eye(m)
    for start in range(0, vocabulary, BLOCK):
        X_BK = X_VK[start : start + BLOCK]
        scaled_BK = X_BK * q_V[start : start + BLOCK, None].astype(np.float32)
        metric_KK += 0.5 * (X_BK.T @ scaled_BK)
    root_KK = np.linalg.inv(np.linalg.cholesky(metric_KK)).T.astype(np.float32)
    length_V = np.empty(vocabulary)
    for start in range(0, vocabulary, BLOCK):
        turned_BK = X_VK[start : start + BLOCK] @ root_KK
        length_V[start : start + BLOCK] = np.sqrt(np.einsum("bk,bk->b", turned_BK, turned_BK) / m)
    return RowLengths(length_V)
