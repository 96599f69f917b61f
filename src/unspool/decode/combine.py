"""Models made of models: contrastive decoding, DExperts, guidance, early exits (DoLa), and ensembles.

The first four are contrasts: their scores are a weighted difference of log-probabilities. Log-probabilities
that are subtracted are at least −10⁴, so that a token of zero probability has a finite score. The papers that
write logits differ only by a constant of each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from unspool.arguments import as_int, as_number, items, number, one_of, set_fields
from unspool.decode.lockstep import Lockstep, States, check_model
from unspool.decode.prompts import ids_of
from unspool.interfaces import Step, StepModel

FLOOR = -1e4
"""Lower bound of log-probabilities that are subtracted."""
ALPHA: dict[str, Any] = {
    "at_least": 0,
    "at_most": 1,
    "advice": "0 keeps every token, 1 only the most probable.",
}


def softmax_step(score_NV: Tensor, like: Step) -> Step:
    """The Step of softmax(score); hidden states and attention are those of `like`."""
    logp_NV, log_norm_N = torch.log_softmax(score_NV, dim=-1), score_NV.logsumexp(dim=-1)
    return Step(logp_NV, like.hidden_ND, like.attention, log_norm_N=log_norm_N)


def plausible(logp_NV: Tensor, alpha: float) -> Tensor:
    """True if p(i) ≥ α max_j p(j) (at least one token of every row), or if p(i) is NaN."""
    threshold = math.log(alpha) if alpha else -math.inf
    return ~(logp_NV < logp_NV.amax(dim=-1, keepdim=True) + threshold)


@dataclass(frozen=True)
class Contrast(Lockstep):
    """Contrast(strong, weak): contrastive decoding, which prefers what is probable for the strong model only.

        score(i) = log p_strong(i) − λ log p_weak(i; τ)   if p_strong(i) ≥ α max_j p_strong(j), else −∞

    Li et al. 2023, §3.2–3.4 (papers.bib: li2023contrastive). The constraint excludes tokens that are
    improbable for both models. `Contrast.obrien_lewis` is the later form,

        score(i) = (1 + β) log p_strong(i) − β log p_weak(i)   on the same set,

    O'Brien & Lewis 2023, §2 (papers.bib: obrien2023contrastive).

    Symbols: expert = `strong`, amateur = `weak`, λ or β = `weight`, 1 or 1 + β = `strong_weight`,
    τ = `temperature`. Sampling uses softmax(score), `logp_NV`; beam search sums the score, `score_NV`, as in
    the paper.
    """

    strong: StepModel
    weak: StepModel
    alpha: float = number(0.1, **ALPHA)
    """How probable a token must be to the strong model, as a share of its most probable one."""
    weight: float = number(1.0, at_least=0, advice="0 leaves the weak model out.")
    temperature: float = number(1.0, above=0, advice="1 leaves the weak model as it is.")
    """Of the weak model: below 1 it is surer of itself."""
    strong_weight: float = number(1.0, above=0, advice="The paper has 1.")

    @classmethod
    def obrien_lewis(cls, strong: StepModel, weak: StepModel, beta: float = 0.5, alpha: float = 0.1) -> Self:
        """(1 + β) log p_strong − β log p_weak."""
        beta = as_number("beta", beta, at_least=0, advice="0 is the strong model alone.")
        return cls(strong, weak, alpha, weight=beta, strong_weight=1 + beta)

    def parts(self) -> tuple[StepModel, ...]:
        return self.strong, self.weak

    def join(self, steps: Sequence[Step]) -> Step:
        strong, weak = steps
        weak_NV = weak.logp_NV
        if self.temperature != 1:
            weak_NV = torch.log_softmax(weak_NV / self.temperature, dim=-1)
        score_NV = self.strong_weight * strong.logp_NV - self.weight * weak_NV.clamp(min=FLOOR)
        score_NV = score_NV.masked_fill(~plausible(strong.logp_NV, self.alpha), -math.inf)
        return replace(softmax_step(score_NV, strong), score_NV=score_NV)


@dataclass(frozen=True)
class DExperts(Lockstep):
    """DExperts(base, expert, anti_expert): steer a model by the difference of an expert and an anti-expert.

        p̃(i) ∝ p(i) · (p₊(i) / p₋(i))^α,     p₊ the expert's, p₋ the anti-expert's

    Liu et al. 2021, §2 (papers.bib: liu2021dexperts). `DExperts.proxy_tuning` has α = 1, a tuned small
    model as expert and the untuned one as anti-expert: a large model is steered as if it were tuned,
    Liu et al. 2024, §2 (papers.bib: liu2024tuning).

    α is `weight`; 0 is the base alone. Differs from the papers: tokens of zero probability for the base stay
    excluded. The paper truncates the base before steering; here a truncation in the decoder cuts afterwards.
    """

    base: StepModel
    expert: StepModel
    anti_expert: StepModel
    weight: float = number(2.0, at_least=0, advice="0 is the base alone, 1 proxy tuning.")
    """α; the paper uses 2 against toxicity."""

    @classmethod
    def proxy_tuning(cls, base: StepModel, tuned: StepModel, untuned: StepModel) -> Self:
        """Steer the base as if it were tuned like the small model."""
        return cls(base, tuned, untuned, weight=1.0)

    def parts(self) -> tuple[StepModel, ...]:
        return self.base, self.expert, self.anti_expert

    def join(self, steps: Sequence[Step]) -> Step:
        base, expert, anti = steps
        moved_NV = self.weight * (expert.logp_NV.clamp(min=FLOOR) - anti.logp_NV.clamp(min=FLOOR))
        score_NV = (base.logp_NV + moved_NV).masked_fill(base.logp_NV == -math.inf, -math.inf)
        return softmax_step(score_NV, base)


@dataclass(frozen=True)
class Guidance(Lockstep):
    """Guidance(model, 1.5): classifier-free guidance, which follows a prompt more closely.

        log p̂(i | prompt) = log p(i | other) + γ (log p(i | prompt) − log p(i | other)),   normalised

    Sanchez et al. 2023, §2 (papers.bib: sanchez2023cfg), after Ho & Salimans 2022 (papers.bib: ho2022cfg).
    The other prompt is a negative prompt; without one, the model reads only the last token of the prompt, as
    in Hugging Face. γ is `weight`: 1 is the model, 1.5 is common, 0 is the model with the other prompt.

    One model reads both prompts, so that each step costs twice, and the longer prompt limits the new tokens.
    Differs from the paper: tokens of zero probability for the prompt stay excluded.
    """

    model: StepModel
    weight: float = number(1.5, at_least=0, advice="1 is the model, 1.5 is common.")
    """γ, the guidance scale."""
    negative: str | Sequence[int] | None = None
    """The negative prompt, a string or token ids; None for the last token of the prompt."""

    def __post_init__(self) -> None:
        check_model(self.model)
        if self.negative is not None and not isinstance(self.negative, str):
            set_fields(self, negative=ids_of(self.model, self.negative, 0))
        if self.negative is None and self.model.is_encoder_decoder:
            raise ValueError("Guidance of an encoder–decoder needs a negative source")
        super().__post_init__()

    def parts(self) -> tuple[StepModel, ...]:
        other = None if self.negative is None else ids_of(self.model, self.negative, 0)
        return self.model, Reprompted(self.model, other)

    def join(self, steps: Sequence[Step]) -> Step:
        prompted, other = steps
        other_NV = other.logp_NV.clamp(min=FLOOR)
        score_NV = other_NV + self.weight * (prompted.logp_NV.clamp(min=FLOOR) - other_NV)
        return softmax_step(score_NV.masked_fill(prompted.logp_NV == -math.inf, -math.inf), prompted)


@dataclass(frozen=True)
class Reprompted(Lockstep):
    """A model that reads another prompt: the same for all rows, or the last token of each prompt."""

    model: StepModel
    prompt: tuple[int, ...] | None

    def parts(self) -> tuple[StepModel, ...]:
        return (self.model,)

    def join(self, steps: Sequence[Step]) -> Step:
        return steps[0]

    def prompts_read(self, prompt: Sequence[int]) -> Sequence[tuple[StepModel, Sequence[int]]]:
        return [(self.model, self._other(prompt))]

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, States]:
        return super().start([self._other(prompt) for prompt in prompts])

    def _other(self, prompt: Sequence[int]) -> Sequence[int]:
        return prompt[-1:] if self.prompt is None else self.prompt


@dataclass(frozen=True)
class EarlyExit(Lockstep):
    """EarlyExit(model): DoLa, the contrast of a model with one of its early layers.

        log p̂(i) = F(i) − logsumexp_j F(j)
        F(i) = log q_N(i) − log q_M(i)   if q_N(i) ≥ α max_j q_N(j), else −∞
        M = argmax_{ℓ ∈ candidates} JSD(q_N ‖ q_ℓ)

    Chuang et al. 2024, §2.2 (the choice of the layer) and §2.3 (the contrast) (papers.bib: chuang2024dola).
    q_ℓ is the distribution after ℓ blocks, N their number; the layer is chosen for every row and step. A
    single candidate is the static form of the paper.

        low     even layers from 2 up to N/2 (to 20 in models of more than 40)   for longer answers
        high    every second layer from N/2 (from N − 20) up to N                for short factual answers

    Differs from the paper: "low" excludes the embedding, layer 0, as the paper does for tied embeddings; to
    include it, give the layers: (0, 2, 4). Differs from Hugging Face: the layer is chosen for each row, not
    for the batch; the divergence is the Jensen–Shannon divergence, while theirs swaps the arguments of KL;
    the last norm is applied before every exit.
    """

    model: StepModel
    layers: str | tuple[int, ...] = "low"
    """The candidates: "low", "high", or numbers of blocks; a single one is static."""
    alpha: float = number(0.1, **ALPHA)
    """Minimum probability of a token as a share of the most probable one."""

    candidates: tuple[int, ...] = field(init=False, repr=False, compare=False)
    exits_model: StepModel = field(init=False, repr=False, compare=False)
    """The model whose Steps contain these exits."""

    def __post_init__(self) -> None:
        check_model(self.model)
        if isinstance(self.layers, str) and self.layers not in BUCKETS:
            raise ValueError(
                f"layers={self.layers!r} is unknown: choose from {', '.join(sorted(BUCKETS))}, "
                "or give numbers of blocks such as (2, 4)"
            )
        layered = self.model.layered
        if layered is None:
            raise TypeError(
                f"{type(self.model).__name__} does not return predictions of early layers: "
                "use a `layered` model, such as a TransformerLM"
            )
        if isinstance(self.layers, str):
            candidates = BUCKETS[self.layers](layered.layers)
        else:
            advice = 'Count blocks: 1 is after the first of them. A name such as "low" chooses several.'
            layers = items("EarlyExit.layers", self.layers, "numbers of blocks such as (2, 4)")
            candidates = tuple(
                as_int("EarlyExit.layers", layer, at_least=0, advice=advice) for layer in layers
            )
            set_fields(self, layers=candidates)
        set_fields(self, candidates=candidates, exits_model=layered.exits(candidates))
        super().__post_init__()

    def parts(self) -> tuple[StepModel, ...]:
        return (self.exits_model,)

    def join(self, steps: Sequence[Step]) -> Step:
        (step,) = steps
        last_NV, exits_NEV = step.logp_NV, step.exits_NEV
        assert exits_NEV is not None, "exits() promised exits_NEV"
        early_NV = exits_NEV[:, 0]
        if exits_NEV.shape[1] > 1:
            farthest_N = divergence(last_NV[:, None], exits_NEV).argmax(dim=-1)
            early_NV = exits_NEV[torch.arange(len(exits_NEV), device=exits_NEV.device), farthest_N]
        score_NV = last_NV - early_NV.clamp(min=FLOOR)
        return softmax_step(score_NV.masked_fill(~plausible(last_NV, self.alpha), -math.inf), step)


def divergence(logp: Tensor, logq: Tensor) -> Tensor:
    """(…, V), (…, V) → (…): JSD(p ‖ q) = ½ KL(p ‖ m) + ½ KL(q ‖ m), m = ½ (p + q)."""
    logm = torch.logaddexp(logp, logq) - math.log(2)

    def kl(loga: Tensor) -> Tensor:
        # 0 log 0 is 0.
        return torch.where(loga > -math.inf, loga.exp() * (loga - logm), 0.0).sum(dim=-1)

    return (kl(logp) + kl(logq)) / 2


def low(depth: int) -> tuple[int, ...]:
    """The lower half; for a shallow model the second layer, or the one before the last."""
    return tuple(range(2, min(depth // 2, 20), 2)) or (min(2, depth - 1),)


def high(depth: int) -> tuple[int, ...]:
    """The upper half without the last layer."""
    return tuple(range(max(depth // 2, depth - 20), depth, 2))


BUCKETS: dict[str, Callable[[int], tuple[int, ...]]] = {"low": low, "high": high}


@dataclass(frozen=True)
class Ensemble(Lockstep):
    """Ensemble((a, b, c)): the weighted mean of the predictions of models.

        probability        p(i) = Σ_m w_m p_m(i)
        log_probability    p(i) ∝ exp Σ_m w_m log p_m(i)            Σ_m w_m = 1

    The mean of probabilities is large if that of any model is; the mean of log-probabilities only if all are.
    The first is Stone's opinion pool, 1961 (papers.bib: stone1961opinion); the second a weighted product of
    experts, Hinton 2002, eq. 1 (papers.bib: hinton2002training).
    """

    models: tuple[StepModel, ...]
    weights: tuple[float, ...] | None = None
    """One for each model, up to a factor; None for equal weights."""
    mean: str = "probability"

    def __post_init__(self) -> None:
        set_fields(self, models=items("Ensemble.models", self.models, "a list of models"))
        if not self.models:
            raise ValueError("the ensemble is empty: give at least one model")
        one_of("Ensemble.mean", self.mean, MEANS)
        if self.weights is not None:
            set_fields(self, weights=items("Ensemble.weights", self.weights, "a list of numbers, or None"))
            if len(self.weights) != len(self.models):
                raise ValueError(
                    f"{len(self.weights)} weights for {len(self.models)} models: give one for each model"
                )
            advice = "To leave a model out, do not name it."
            weights = tuple(
                as_number(f"Ensemble.weights[{place}]", weight, above=0, advice=advice)
                for place, weight in enumerate(self.weights)
            )
            set_fields(self, weights=weights)
        super().__post_init__()

    def parts(self) -> tuple[StepModel, ...]:
        return self.models

    def join(self, steps: Sequence[Step]) -> Step:
        """The mean, without hidden states, because those of different models are not comparable."""
        logp_MNV = torch.stack([step.logp_NV for step in steps])
        weights = self.weights or (1.0,) * len(steps)
        share_M = torch.tensor(weights, dtype=logp_MNV.dtype, device=logp_MNV.device) / sum(weights)
        return Step(MEANS[self.mean](logp_MNV, share_M))


def probability(logp_MNV: Tensor, share_M: Tensor) -> Tensor:
    """log Σ_m w_m p_m."""
    return torch.logsumexp(logp_MNV + share_M.log()[:, None, None], dim=0)


def log_probability(logp_MNV: Tensor, share_M: Tensor) -> Tensor:
    """Σ_m w_m log p_m, normalised."""
    sum_NV = (logp_MNV * share_M[:, None, None]).sum(dim=0)
    if bool((sum_NV.amax(dim=-1) == -math.inf).any()):
        raise ValueError(
            'every token has probability 0 for some model of the ensemble: use mean="probability"'
        )
    return torch.log_softmax(sum_NV, dim=-1)


MEANS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "probability": probability,
    "log_probability": log_probability,
}
