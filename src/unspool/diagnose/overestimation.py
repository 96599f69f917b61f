"""How far a model is from what the theory of truncation assumes, on a language whose truth is known.

    δ = max (log p* − log p̂)                         the empirical underestimation, over all that can occur
    Corollary 1:  p̂ᵢ > τ ⇒ p*ᵢ > 0,  τ = 1 − e^(−δ)  how often it fails at a τ
    Theorem 2:    Wᵀp* = Wᵀp̂ at the optimum          ‖Wᵀ(p* − p̂)‖, against errors of the same size at random

Finlayson et al. 2024, §3 (Theorem 1, Corollary 1) and §4 (Theorem 2). papers.bib: finlayson2024closing

Symbols: p* is `true_CV`, log p̂ `logp_CV`, with a row for each of C contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.basis import tau_from_delta
from unspool.decode.arguments import as_matrix, as_number, items


@dataclass(frozen=True)
class Underestimation:
    """log p* − log p̂ over the tokens that can truly occur."""

    delta: float
    """The largest: the δ of Theorem 1."""
    quantiles: dict[float, float]
    """Of the largest in each context: quantiles[0.5] is what half of the contexts stay below."""
    overestimation: float
    """The largest p̂ − p*: what Theorem 1 bounds by τ."""

    @property
    def tau(self) -> float:
        """The threshold that δ makes safe: 1 − e^(−δ); 0 where nothing is underestimated."""
        return tau_from_delta(self.delta) if 0 < self.delta < float("inf") else float(self.delta > 0)


@dataclass(frozen=True)
class Failures:
    """Where p̂ > τ and yet p* = 0."""

    tau: float
    kept: int
    """Tokens above τ, in all contexts."""
    impossible: int
    """Those of them that cannot occur."""
    mass: float
    """What share of the kept probability is theirs, on average over contexts that keep any."""

    @property
    def share(self) -> float:
        """Of the tokens above τ, how many cannot occur."""
        return self.impossible / self.kept if self.kept else 0.0


@dataclass(frozen=True, eq=False)
class OptimalityGap:
    """How far a model is from Wᵀp* = Wᵀp̂."""

    residual_C: Tensor
    """‖Wᵀ(p* − p̂)‖ in each context, in units of the spread of the rows of W."""
    relative_C: Tensor
    """The same against √Σᵢ(p*ᵢ − p̂ᵢ)²‖wᵢ − w̄‖²: 0 at the optimum, about 1 if errors knew nothing of W."""


def underestimation(
    logp_CV: Tensor, true_CV: Tensor, quantiles: Sequence[float] = (0.5, 0.9, 0.99)
) -> Underestimation:
    """The empirical δ of a model."""
    _check(logp_CV, true_CV)
    quantiles = [
        as_number("quantiles", it, at_least=0, at_most=1, advice="They are shares of the contexts.")
        for it in items("quantiles", quantiles, "a list of shares such as 0.9")
    ]
    true_CV, logp_CV = true_CV.double(), logp_CV.double()
    gap_CV = (true_CV.log() - logp_CV).masked_fill(true_CV == 0, -torch.inf)
    worst_C = gap_CV.amax(dim=-1)
    found = torch.quantile(worst_C, torch.tensor(quantiles, dtype=torch.float64), interpolation="higher")
    over = float((logp_CV.exp() - true_CV).amax())
    return Underestimation(float(worst_C.amax()), dict(zip(quantiles, map(float, found), strict=True)), over)


def failures(logp_CV: Tensor, true_CV: Tensor, tau: float) -> Failures:
    """How often a threshold keeps what cannot occur."""
    _check(logp_CV, true_CV)
    tau = as_number("tau", tau, at_least=0, advice="It is a threshold of probability.")
    if tau >= 1:
        raise ValueError(f"tau is {tau}, but must be at least 0 and below 1.")
    p_CV = logp_CV.double().exp()
    kept_CV = p_CV > tau
    impossible_CV = kept_CV & (true_CV == 0)
    some_C = kept_CV.any(dim=-1)
    share_C = (p_CV * impossible_CV).sum(dim=-1)[some_C] / (p_CV * kept_CV).sum(dim=-1)[some_C]
    mass = float(share_C.mean()) if len(share_C) else 0.0
    return Failures(tau, int(kept_CV.sum()), int(impossible_CV.sum()), mass)


def optimality_gap(logp_CV: Tensor, true_CV: Tensor, matrix_VD: Tensor) -> OptimalityGap:
    """How far the model is from Theorem 2's optimum; W is `matrix_VD`."""
    _check(logp_CV, true_CV)
    as_matrix("the output matrix", matrix_VD, "(vocabulary, width)")
    if len(matrix_VD) != logp_CV.shape[1]:
        raise ValueError(
            f"the output matrix has shape {tuple(matrix_VD.shape)}, but must have a row for each of the "
            f"{logp_CV.shape[1]} tokens."
        )
    # Since both distributions sum to 1, only differences between rows of W count.
    w_VD = matrix_VD.double() - matrix_VD.double().mean(dim=0)
    error_CV = true_CV.double() - logp_CV.double().exp()
    residual_C = (error_CV @ w_VD).norm(dim=-1)
    at_random_C = (error_CV.square() @ w_VD.square().sum(dim=-1)).sqrt()
    spread = w_VD.square().sum(dim=-1).mean().sqrt()
    return OptimalityGap(residual_C / spread, residual_C / at_random_C.clamp(min=1e-300))


def _check(logp_CV: Tensor, true_CV: Tensor) -> None:
    as_matrix("log p̂", logp_CV, "(contexts, vocabulary)")
    as_matrix("p*", true_CV, "(contexts, vocabulary)")
    if logp_CV.shape != true_CV.shape:
        raise ValueError(
            f"log p̂ has shape {tuple(logp_CV.shape)} and p* {tuple(true_CV.shape)}, but both must be "
            "(contexts, vocabulary)."
        )
    total_C = true_CV.double().sum(dim=-1)
    if bool((true_CV < 0).any()) or bool(((total_C - 1).abs() > 1e-4).any()):
        raise ValueError("p* has a row that is no distribution: probabilities are ≥ 0 and sum to 1.")
