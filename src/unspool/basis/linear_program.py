"""The same question as a plain linear program for a general solver: slow, and independent of all else here.

    θ = max θ :  Σ_{j≠i} yⱼ·w̃ⱼ = θ·w̃ᵢ,   −p̂ⱼ/p̂ᵢ ≤ yⱼ ≤ c·p̂ⱼ/p̂ᵢ            accept  ⇔  θ < 1

This is F_i(c)/p̂ᵢ, the dual of acceptance's f; the box's lower end is p ≥ 0, its upper end p ≤ e^δ·p̂. It is
always feasible (y = 0), so that the solver never has to tell an infeasible problem from a badly scaled one:
it optimises one number of size 1, which is compared with 1. Columns of W̃ are scaled to unit size first.
Probabilities are in the box and not in the coefficients, where they make HiGHS a hundred times slower.

Finlayson et al. 2024, eq. 3; solved by HiGHS.
papers.bib: finlayson2024closing
Differs from the paper's code: p ≥ 0 is a constraint, and a solver that fails is an error, not a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from unspool.basis.arrays import checked_token, float64, probabilities, shown
from unspool.basis.theory import slope_from_tau

# HiGHS satisfies constraints and optimality to 10⁻⁷ each; θ near 1 inherits a few of both.
TOLERANCE = 2e-6
# The simplex method may lose its way where probabilities differ by many orders of magnitude.
METHODS = ("highs-ipm", "highs-ds")
# The longest side of the box, so that its numbers do not drown the tolerance; and the smallest p̂ᵢ beside it.
LONGEST = 1e7
LEAST = 1e-3


@dataclass(frozen=True)
class Reference:
    """θ = F_i(c)/p̂ᵢ as HiGHS finds it."""

    theta: float
    tolerance: float = TOLERANCE
    """How much HiGHS may be mistaken in θ."""

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def accepted(self) -> bool:
        """θ < 1."""
        return bool(self.theta < 1)

    @property
    def near(self) -> bool:
        """Whether θ is so near to 1 that the solver's tolerance leaves the verdict open."""
        return bool(abs(self.theta - 1) <= self.tolerance)


def reference(W: Any, p: ArrayLike, i: int, tau: float, *, methods: Sequence[str] = METHODS) -> Reference:
    """Solve the linear program over the rows W (V, r) of a test: `BasisTest.weight`."""
    W_VR, c = float64(W), slope_from_tau(tau)
    if W_VR.ndim != 2:
        raise ValueError(f"W has shape {W_VR.shape}; expected (vocabulary, rank), one row per token.")
    if not np.isfinite(W_VR).all():
        raise ValueError("W contains NaN or infinite entries; no test is possible on it.")
    p_V, i = probabilities(p, len(W_VR)), checked_token(i, len(W_VR))
    if not isinstance(methods, list | tuple) or not methods or any(it not in METHODS for it in methods):
        raise ValueError(f"methods is {shown(methods)}; expected some of {METHODS}, in the order to try.")
    if not p_V[i] > 0:
        raise ValueError(f"Token {i} has probability zero: there is nothing to test, it cannot be sampled.")
    W_VM = np.column_stack([W_VR, np.ones(len(W_VR))])
    W_VM = W_VM / np.maximum(np.abs(W_VM).max(axis=0), 1e-300)
    goal = min(1.0, LONGEST * p_V[i] / p_V.max())
    if goal < LEAST:
        raise ArithmeticError(
            f"Token {i} is {p_V.max() / p_V[i]:.0e} times less probable than the first, and HiGHS tells "
            f"nothing apart beyond {LONGEST / LEAST:.0e}. Ask about a more probable token, or verify the "
            f"verdict of BasisTest.accepts by its certificate, with BasisTest.check."
        )
    others = np.flatnonzero((p_V > 0) & (np.arange(len(p_V)) != i))
    box_J = p_V[others] * (goal / p_V[i])
    # Presolving may find a program with nearly dependent equalities infeasible, which y = 0 is proof against.
    for method, presolve in product(methods, (True, False)):
        found = linprog(
            np.append(np.zeros(len(others)), -1.0),
            A_eq=np.column_stack([W_VM[others].T, -W_VM[i]]),
            b_eq=np.zeros(W_VM.shape[1]),
            bounds=np.vstack([np.column_stack([-box_J, c * box_J]), [[0.0, np.inf]]]),
            method=method,
            options={"presolve": presolve},
        )
        if found.status == 0:
            return Reference(float(-found.fun) / goal, TOLERANCE / goal)
    raise ArithmeticError(
        f"HiGHS did not solve the linear program: {found.message} Ask about a more probable token, or verify "
        f"the verdict of BasisTest.accepts by its certificate, with BasisTest.check."
    )
