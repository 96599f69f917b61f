"""An acceptance is an inequality: true or false, and decided either way.

    Σ_{j≠i} p̂ⱼ·max(τ·sⱼ, −(1−τ)·sⱼ) − (1−τ)·p̂ᵢ·sᵢ < 0,   s = W̃λ

This is f(λ) < p̂ᵢ·sᵢ, times 1 − τ, so that there is nothing to divide by; no term but the last can be
negative, so that sᵢ > 0 follows. It is added up in float64, with the most that rounding can amount to in each
row (componentwise: (m+4)·2⁻⁵²·Σ|w||λ| for m products). Where this leaves the sign open, the rows with the
largest share in it are added up in rational arithmetic: a few, then more, in the end all.

Finlayson et al. 2024, the dual of eq. 3.
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import fsum, inf
from typing import Any

import numpy as np

from unspool.basis.arrays import Array, Indices, float64
from unspool.basis.verification.rational import Exact, power_of_two

BLOCK = 1024
# Underflow can make a product, a sum or a scaled λ wrong by this much beside what is relative.
TINY = 2.0**-1022


class Inequality:
    """One acceptance."""

    def __init__(self, W: Any, p_V: Array, tau: float, i: int, slopes_M: Array) -> None:
        self.W, self.p_V, self.tau, self.i, self.slopes_M = W, p_V, tau, i, slopes_M

    def holds(self) -> bool:
        """Whether it is true."""
        if not np.isfinite(self.slopes_M).all() or not self.slopes_M.any():
            return False
        power = int(np.frexp(np.abs(self.slopes_M).max())[1])
        parts = zip(*self._rounded(np.ldexp(self.slopes_M, -power)), strict=True)
        term_V, doubt_V = (np.concatenate(part) for part in parts)
        order_V = np.argsort(-doubt_V)
        for n in (0, 64, 1024, len(order_V)):
            doubt = fsum(doubt_V[order_V[n:]]) * (1 + 1e-9)
            if doubt == inf:
                continue
            total = self._exactly(order_V[:n]) / power_of_two(power) + Fraction(fsum(term_V[order_V[n:]]))
            if abs(total) > doubt:
                break
        return total < 0

    def _rounded(self, lam_M: Array) -> Iterator[tuple[Array, Array]]:
        """The terms, block by block, and how wrong each may be; infinitely so where it is no number."""
        unit, size_M = (len(lam_M) + 4) * 2.0**-52, np.abs(lam_M) + TINY
        for block, W_NM in enumerate(blocks_of(self.W)):
            start = block * BLOCK
            p_N = self.p_V[start : start + BLOCK]
            with np.errstate(over="ignore", invalid="ignore"):
                s_N = W_NM @ lam_M
                fall_N = -(1 - self.tau) * s_N
                rise_N = np.maximum(self.tau * s_N, fall_N)
                if start <= self.i < start + BLOCK:
                    rise_N[self.i - start] = fall_N[self.i - start]
                term_N = p_N * rise_N
                doubt_N = p_N * (unit * (np.abs(W_NM) @ size_M)) + 2.0**-50 * np.abs(term_N) + TINY
            known_N = np.isfinite(term_N) & np.isfinite(doubt_N)
            yield np.where(known_N, term_N, 0.0), np.where(known_N, doubt_N, inf)

    def _exactly(self, rows_N: Indices) -> Fraction:
        """The terms of these rows together."""
        tau, slopes, total = Fraction(self.tau), Exact.of(self.slopes_M), Fraction(0)
        for start in range(0, len(rows_N), BLOCK):
            part_N = rows_N[start : start + BLOCK]
            for j, w_M in zip(part_N.tolist(), rows_of(self.W, part_N), strict=True):
                s = Exact.of(w_M).dot(slopes)
                fall = (tau - 1) * s
                total += Fraction(float(self.p_V[j])) * (fall if j == self.i else max(tau * s, fall))
        return total


def rows_of(W: Any, which: slice | Indices) -> Array:
    """Rows of W̃ = [W, 1] in float64."""
    rows_ND = float64(W[which])
    if not np.isfinite(rows_ND).all():
        raise ValueError("W contains NaN or infinite entries; nothing can be proven about it.")
    return np.column_stack([rows_ND, np.ones(len(rows_ND))])


def blocks_of(W: Any) -> Iterator[Array]:
    """All rows of W̃, block by block."""
    for start in range(0, W.shape[0], BLOCK):
        yield rows_of(W, slice(start, start + BLOCK))
