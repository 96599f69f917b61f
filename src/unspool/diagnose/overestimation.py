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
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.basis import tau_from_delta
from unspool.data.encoded_store import hash_tokenizer
from unspool.data.known_languages.known_language import KnownLanguage, TrueModel
from unspool.decode.arguments import as_matrix, as_number, items
from unspool.diagnose.softmax_bottleneck import least_error, log_probabilities, smoothed, spectrum
from unspool.evaluate.teacher_forcing import Window
from unspool.interfaces import StepModel
from unspool.tokenization import Tokenizer


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


SHARE = 1e-6


@dataclass(frozen=True)
class Distance:
    """How far log-probabilities are from the true ones.

    A model beside the truth of the language that it learnt: what its rank costs, and what it underestimates.

        A = log((1 − s)·p* + s/V)
        ‖A − A′‖_F ≥ √Σ_{k>r} σ_k(A)²        whatever A′ of rank r is; r is the most that the model can reach
        δ = max log p* − log p̂               over all that can come

    Eckart & Young 1936 (papers.bib: eckart1936approximation) for the bound; Finlayson et al. 2024, §3
    (papers.bib: finlayson2024closing) for δ. Where p* = 0, log p* is −∞ and every finite prediction
    infinitely wrong: the small share s for all words alike gives A a norm. δ is measured without it.

    Symbols: A′ `logp_CV`, p* `true_CV`, s `share`, r `limit`.
    """

    share: float
    """s, of every context's probability, for all words alike."""
    rank: int
    """Of the true log-probabilities, numerically."""
    least: float | None
    """The error that no matrix of the model's rank can go below; None where any rank can be reached."""
    reached: float
    """The model's error, ‖A − A′‖_F."""
    delta: float
    """The largest log p* − log p̂ of all that can come."""
    tau: float
    """1 − e^(−δ): what overestimation cannot exceed."""
    overestimation: float
    """The largest p̂ − p*."""


def distance(logp_CV: Tensor, true_CV: Tensor, limit: int | None, share: float = SHARE) -> Distance:
    """From log-probabilities and the true probabilities in the same contexts."""
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
    language: KnownLanguage[Any], places: int, seed: int = 0, context: int | None = None
) -> list[Window]:
    """Sentences of the language, BOS … EOS, with so many places; cut where the model's context ends."""
    dice, found = Random(seed), list[Window]()
    while sum(len(it.tokens) - it.first for it in found) < places:
        tokens = (language.bos, *language.sample(dice), language.eos)
        found.append(Window(len(found), tokens[:context], 1))
    return found


def true_probabilities(language: KnownLanguage[Any], parts: Sequence[Window], places: int) -> Tensor:
    """(C, V): p* at the same places as `log_probabilities`."""
    return log_probabilities(TrueModel(language), parts, places).double().exp()


def speaks(model: StepModel, language: KnownLanguage[Any]) -> bool:
    """Whether the model's tokens are the language's: a text of another kind may have been learnt."""
    return isinstance(model.tokenizer, Tokenizer) and hash_tokenizer(model.tokenizer) == hash_tokenizer(
        language.codec()
    )
