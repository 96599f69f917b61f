"""Under- and overestimation of a model compared with an artificial language of known probabilities.

    δ = max (log p* − log p̂)                         the empirical underestimation, over all possible tokens
    Corollary 1:  p̂ᵢ > τ ⇒ p*ᵢ > 0,  τ = 1 − e^(−δ)  failures at a threshold τ
    Theorem 2:    Wᵀp* = Wᵀp̂ at the optimum          ‖Wᵀ(p* − p̂)‖ / that of random errors of the same size

Finlayson et al. 2024, §3 (Theorem 1, Corollary 1) and §4 (Theorem 2). papers.bib: finlayson2024closing

Symbols: p* is `true_CV`, log p̂ `logp_CV`, with a row for each of C contexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import as_matrix, as_number
from unspool.basis import tau_from_delta
from unspool.data.encoded_store import hash_tokenizer
from unspool.data.known_languages.known_language import KnownLanguage, TrueModel
from unspool.diagnose.softmax_bottleneck import least_error, log_probabilities, smoothed, spectrum
from unspool.evaluate.teacher_forcing import Window
from unspool.interfaces import StepModel
from unspool.tokenization import Tokenizer


@dataclass(frozen=True)
class Underestimation:
    """log p* − log p̂ over the possible tokens."""

    delta: float
    """The largest value: δ of Theorem 1."""
    quantiles: dict[float, float]
    """Quantiles of the largest value of each context."""
    overestimation: float
    """The largest p̂ − p*, which Theorem 1 bounds by τ."""

    @property
    def tau(self) -> float:
        """The safe threshold 1 − e^(−δ); 0 if nothing is underestimated."""
        return tau_from_delta(self.delta) if 0 < self.delta < float("inf") else float(self.delta > 0)


@dataclass(frozen=True)
class Failures:
    """Tokens with p̂ > τ but p* = 0."""

    tau: float
    kept: int
    """Tokens above τ in all contexts."""
    impossible: int
    """Impossible tokens among them."""
    mass: float
    """Mean share of the kept probability on impossible tokens, over contexts that keep any token."""

    @property
    def share(self) -> float:
        """Share of the tokens above τ that is impossible."""
        return self.impossible / self.kept if self.kept else 0.0


@dataclass(frozen=True, eq=False)
class OptimalityGap:
    """Distance of a model to Wᵀp* = Wᵀp̂."""

    residual_C: Tensor
    """‖Wᵀ(p* − p̂)‖ in each context, in units of the spread of the rows of W."""
    relative_C: Tensor
    """The residual / √Σᵢ(p*ᵢ − p̂ᵢ)²‖wᵢ − w̄‖²: 0 at the optimum, about 1 if errors are independent of W."""


def underestimation(logp_CV: Tensor, true_CV: Tensor) -> Underestimation:
    """Measure the empirical δ of a model."""
    _check(logp_CV, true_CV)
    true_CV, logp_CV = true_CV.double(), logp_CV.double()
    gap_CV = (true_CV.log() - logp_CV).masked_fill(true_CV == 0, -torch.inf)
    worst_C = gap_CV.amax(dim=-1)
    quantiles = {
        share: float(torch.quantile(worst_C, share, interpolation="higher")) for share in (0.5, 0.9, 0.99)
    }
    return Underestimation(float(worst_C.amax()), quantiles, float((logp_CV.exp() - true_CV).amax()))


def failures(logp_CV: Tensor, true_CV: Tensor, tau: float) -> Failures:
    """Count the impossible tokens that a threshold keeps."""
    _check(logp_CV, true_CV)
    tau = as_number("tau", tau, at_least=0, advice="It is a threshold of probability.")
    if tau >= 1:
        raise ValueError(f"tau is {tau}, but must be at least 0 and below 1")
    p_CV = logp_CV.double().exp()
    kept_CV = p_CV > tau
    impossible_CV = kept_CV & (true_CV == 0)
    has_kept_C = kept_CV.any(dim=-1)
    share_C = (p_CV * impossible_CV).sum(dim=-1)[has_kept_C] / (p_CV * kept_CV).sum(dim=-1)[has_kept_C]
    mass = float(share_C.mean()) if len(share_C) else 0.0
    return Failures(tau, int(kept_CV.sum()), int(impossible_CV.sum()), mass)


def optimality_gap(logp_CV: Tensor, true_CV: Tensor, matrix_VD: Tensor) -> OptimalityGap:
    """Measure the distance of the model to the optimum of Theorem 2; W is `matrix_VD`."""
    _check(logp_CV, true_CV)
    as_matrix("the output matrix", matrix_VD, "(vocabulary, width)")
    if len(matrix_VD) != logp_CV.shape[1]:
        raise ValueError(
            f"the output matrix has shape {tuple(matrix_VD.shape)}, but must have "
            f"{logp_CV.shape[1]} rows, one per token"
        )
    # Both distributions sum to 1, so only differences between rows of W count.
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
        raise ValueError(f"log p̂ has shape {tuple(logp_CV.shape)} but p* {tuple(true_CV.shape)}")
    total_C = true_CV.double().sum(dim=-1)
    if bool((true_CV < 0).any()) or bool(((total_C - 1).abs() > 1e-4).any()):
        raise ValueError("a row of p* is not a distribution: probabilities must be ≥ 0 and sum to 1")


SHARE = 1e-6


@dataclass(frozen=True)
class Distance:
    """Distance of a model's log-probabilities to the true ones: the cost of its rank, and underestimation.

        A = log((1 − s)·p* + s/V)
        ‖A − A′‖_F ≥ √Σ_{k>r} σ_k(A)²        for every A′ of rank r; r is the rank limit of the model
        δ = max log p* − log p̂               over all possible tokens

    Eckart & Young 1936 (papers.bib: eckart1936approximation) for the bound; Finlayson et al. 2024, §3
    (papers.bib: finlayson2024closing) for δ. If p* = 0, log p* is −∞; the small uniform share s makes A
    finite. δ is measured without it.

    Symbols: A′ `logp_CV`, p* `true_CV`, s `share`, r `limit`.
    """

    share: float
    rank: int
    """Numerical rank of the true log-probabilities."""
    least: float | None
    """The least error of a matrix of the model's rank; None if the rank is not limited."""
    reached: float
    """The model's error, ‖A − A′‖_F."""
    delta: float
    tau: float
    overestimation: float


def distance(logp_CV: Tensor, true_CV: Tensor, limit: int | None, share: float = SHARE) -> Distance:
    """Compare log-probabilities with true probabilities in the same contexts."""
    matrix_CV, under = smoothed(true_CV, share), underestimation(logp_CV, true_CV)
    return Distance(
        share=share,
        rank=spectrum(matrix_CV.float()).rank,
        least=None if limit is None else least_error(matrix_CV, limit),
        reached=float((matrix_CV - logp_CV.double()).norm()),
        delta=under.delta,
        tau=under.tau,
        overestimation=under.overestimation,
    )


def sentences(
    language: KnownLanguage[Any], positions: int, seed: int = 0, context: int | None = None
) -> list[Window]:
    """Draw sentences BOS … EOS with at least `positions` scored tokens, each cut to `context` tokens."""
    rng, windows = Random(seed), list[Window]()
    while sum(len(window.tokens) - window.first for window in windows) < positions:
        tokens = (language.bos, *language.sample(rng), language.eos)
        windows.append(Window(len(windows), tokens[:context], 1))
    return windows


def true_probabilities(language: KnownLanguage[Any], parts: Sequence[Window], positions: int) -> Tensor:
    """Return p* at the positions of `log_probabilities`: (C, V)."""
    return log_probabilities(TrueModel(language), parts, positions).double().exp()


def speaks(model: StepModel, language: KnownLanguage[Any]) -> bool:
    """Whether the tokens of the model are the words of the language."""
    return isinstance(model.tokenizer, Tokenizer) and hash_tokenizer(model.tokenizer) == hash_tokenizer(
        language.new_tokenizer()
    )
