"""A model beside the truth of the language that it learnt: what its rank costs, and what it underestimates.

    A = log((1 − s)·p* + s/V)
    ‖A − A′‖_F ≥ √Σ_{k>r} σ_k(A)²        whatever A′ of rank r is; r is the most that the model can reach
    δ = max log p* − log p̂               over all that can come

Eckart & Young 1936 (papers.bib: eckart1936approximation) for the bound; Finlayson et al. 2024, §3
(papers.bib: finlayson2024closing) for δ. Where p* = 0, log p* is −∞ and every finite prediction infinitely
wrong: the small share s for all words alike gives A a norm. δ is measured without it.

Symbols: A′ `logp_CV`, p* `true_CV`, s `share`, r `limit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from torch import Tensor

from unspool.data.fingerprint import of_text
from unspool.data.languages.known_language import KnownLanguage
from unspool.data.languages.true_model import TrueModel
from unspool.diagnose.overestimation import underestimation
from unspool.diagnose.softmax_bottleneck import least_error, log_probabilities, smoothed, spectrum
from unspool.evaluate.teacher_forcing import Window
from unspool.protocols import StepModel
from unspool.text import Codec

SHARE = 1e-6


@dataclass(frozen=True)
class Distance:
    """How far log-probabilities are from the true ones."""

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
    return isinstance(model.text, Codec) and of_text(model.text) == of_text(language.codec())
