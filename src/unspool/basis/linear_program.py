"""The basis-aware test as a linear program for HiGHS: a slow, independent reference.

    θ = max θ :  Σ_{j≠i} yⱼ·w̃ⱼ = θ·w̃ᵢ,   −p̂ⱼ/p̂ᵢ ≤ yⱼ ≤ c·p̂ⱼ/p̂ᵢ            accept  ⇔  θ < 1

θ is F_i(c)/p̂ᵢ; the lower end of the box is p ≥ 0, the upper end p ≤ e^δ·p̂. The program is always feasible
(y = 0), so the solver never has to distinguish an infeasible problem from a badly scaled one. Columns of W̃
are scaled to unit size. Probabilities are in the box instead of the coefficients, where they would make
HiGHS a hundred times slower.

Finlayson et al. 2024, eq. 3; solved by HiGHS (papers.bib: finlayson2024closing).
Differs from the paper's code: p ≥ 0 is a constraint, and a solver that fails is an error, not a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from unspool.arguments import as_int
from unspool.basis.arrays import as_distribution, as_float64
from unspool.basis.theory import slope_from_tau

# HiGHS satisfies constraints and optimality to 10⁻⁷ each; θ near 1 inherits a few times that.
TOLERANCE = 2e-6
# In the order to try: the simplex method may fail if probabilities differ by many orders of magnitude.
HIGHS_METHODS = ("highs-ipm", "highs-ds")
# The largest side of the box (larger numbers would drown the tolerance) and the smallest p̂ᵢ relative to it.
MAX_BOX = 1e7
MIN_GOAL = 1e-3


@dataclass(frozen=True)
class LinearProgramSolution:
    """θ = F_i(c)/p̂ᵢ as computed by HiGHS."""

    theta: float
    tolerance: float = TOLERANCE

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def accepted(self) -> bool:
        return bool(self.theta < 1)

    @property
    def is_borderline(self) -> bool:
        """True if θ is within the tolerance of 1, which leaves the verdict open."""
        return bool(abs(self.theta - 1) <= self.tolerance)


def solve_linear_program(W: Any, p: ArrayLike, i: int, tau: float) -> LinearProgramSolution:
    """Solve the linear program over the rows W (V, r) of a test: `BasisTest.weight`."""
    W_VR, c = as_float64(W), slope_from_tau(tau)
    if W_VR.ndim != 2:
        raise ValueError(f"W has shape {W_VR.shape}; expected (vocabulary, rank), one row per token")
    if not np.isfinite(W_VR).all():
        raise ValueError("W contains NaN or infinite entries")
    p_V, i = as_distribution(p, len(W_VR)), as_int("token", i, at_least=0, at_most=len(W_VR) - 1)
    if not p_V[i] > 0:
        raise ValueError(f"token {i} has probability zero: it cannot be sampled, so there is nothing to test")
    W_VM = np.column_stack([W_VR, np.ones(len(W_VR))])
    W_VM = W_VM / np.maximum(np.abs(W_VM).max(axis=0), 1e-300)
    goal = min(1.0, MAX_BOX * p_V[i] / p_V.max())
    if goal < MIN_GOAL:
        raise ArithmeticError(
            f"token {i} is {p_V.max() / p_V[i]:.0e} times less probable than the first, beyond the "
            f"{MAX_BOX / MIN_GOAL:.0e} that HiGHS resolves: use BasisTest.accepts and BasisTest.verify"
        )
    others = np.flatnonzero((p_V > 0) & (np.arange(len(p_V)) != i))
    box_J = p_V[others] * (goal / p_V[i])
    # Presolve may call a program with nearly dependent equalities infeasible, although y = 0 is feasible.
    for method, presolve in product(HIGHS_METHODS, (True, False)):
        result = linprog(
            np.append(np.zeros(len(others)), -1.0),
            A_eq=np.column_stack([W_VM[others].T, -W_VM[i]]),
            b_eq=np.zeros(W_VM.shape[1]),
            bounds=np.vstack([np.column_stack([-box_J, c * box_J]), [[0.0, np.inf]]]),
            method=method,
            options={"presolve": presolve},
        )
        if result.status == 0:
            return LinearProgramSolution(float(-result.fun) / goal, TOLERANCE / goal)
    raise ArithmeticError(
        f"HiGHS did not solve the linear program ({result.message}): test a more probable token, or verify a "
        f"certificate with BasisTest.verify"
    )
