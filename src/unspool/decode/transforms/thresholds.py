"""Threshold sampling: top-k, min-p, top-a, top-nσ, epsilon, eta, p-less, κ and XTC cut at a probability.

Equal probabilities are kept or cut together. The most probable token always stays, except with XTC.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from unspool.arguments import Checked, flag, integer, number, set_fields, token_ids, within
from unspool.basis.kappa_rule import KappaRule, RowLengths
from unspool.decode.hypothesis import Hypothesis, Job
from unspool.decode.rng import stream_key, uniform
from unspool.decode.transforms.scores import Truncation, alive, cut, peaks, precise
from unspool.interfaces import Step, StepModel


@dataclass(frozen=True)
class TopK(Truncation):
    """Top-k: keep the k most probable tokens.

        keep x  ⇔  p(x) ≥ p₍ₖ₎,    p₍ₖ₎ the k-th largest probability

    Fan, Lewis & Dauphin 2018 (they draw from the k = 10 most probable words). papers.bib: fan2018hierarchical

    Every token tied with the k-th stays, so that more than k may survive (as in Hugging Face). Differs from
    Hugging Face: k larger than the vocabulary is an error.
    """

    k: int = integer(50, at_least=1, advice="To keep everything, leave TopK out.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        V = logp_NV.shape[-1]
        if self.k > V:
            raise ValueError(
                f"TopK.k is {self.k}, but the vocabulary has {V} tokens. "
                f"Choose k ≤ {V}, or leave TopK out to keep everything."
            )
        # The smallest finite number, not −∞, so that a cut token does not tie with the k-th.
        least_N1 = logp_NV.topk(self.k).values[:, -1:].clamp(min=torch.finfo(logp_NV.dtype).min)
        return logp_NV >= least_N1


@dataclass(frozen=True)
class MinP(Truncation):
    """Min-p: keep tokens at least m times as probable as the best one.

        keep x  ⇔  p(x) ≥ m · max p

    Nguyen, Baker, Neo, Roush, Kirsch & Shwartz-Ziv 2025, §3 (papers.bib: nguyen2025minp).

    m = 0 keeps everything, m = 1 the most probable tokens only. The kept set is that of Hugging Face.
    """

    m: float = number(0.05, at_least=0, at_most=1, advice="Common values are 0.02 … 0.2; 0 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.m * p_NV.amax(dim=-1, keepdim=True)) & alive(logp_NV)


@dataclass(frozen=True)
class TopA(Truncation):
    """Top-a: keep tokens above a threshold that grows with the square of the best probability.

        keep x  ⇔  p(x) ≥ a · (max p)²

    BlinkDL 2022 (RWKV-LM, "top-a sampling", a = 0.2 there). papers.bib: blinkdl2022topa

    A peaked distribution is cut hard, a flat one almost not. a = 0 keeps everything.
    """

    a: float = number(0.2, at_least=0, at_most=1, advice="Common values are 0.1 … 0.5; 0 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.a * p_NV.amax(dim=-1, keepdim=True).square()) & alive(logp_NV)


@dataclass(frozen=True)
class TopNSigma(Truncation):
    """Top-nσ: keep tokens within n standard deviations of the best logit.

        keep x  ⇔  l(x) ≥ max l − n·σ,     σ² = 1/V Σ (l − l̄)²

    Tang, Liu, Xu & Huang 2024 (algorithm 1). papers.bib: tang2024topnsigma

    σ and max l − l do not depend on the constant of the logits, so that log-probabilities serve. A
    temperature before it does not change the kept set. Differs from the paper: tokens already cut (−∞) count
    neither in V nor in σ (as in llama.cpp). Differs from the authors' code: σ divides by V, not by V − 1.
    """

    n: float = number(1.0, above=0, advice="Common values are 1 … 2; larger keeps more.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        logp_NV = precise(logp_NV)
        alive_NV = alive(logp_NV)
        below_NV = logp_NV.amax(dim=-1, keepdim=True) - logp_NV
        counted_NV = below_NV.masked_fill(~alive_NV, 0)
        size_N1 = alive_NV.sum(dim=-1, keepdim=True)
        mean_N1 = counted_NV.sum(dim=-1, keepdim=True, dtype=torch.float64) / size_N1
        norm_N1: Tensor = torch.linalg.vector_norm(counted_NV, dim=-1, keepdim=True, dtype=torch.float64)
        sigma_N1 = (norm_N1.square() / size_N1 - mean_N1.square()).clamp(min=0).sqrt()
        return (below_NV <= self.n * sigma_N1) & alive_NV


@dataclass(frozen=True)
class Epsilon(Truncation):
    """Epsilon sampling: keep tokens of probability ε or more.

        keep x  ⇔  p(x) ≥ ε  or  p(x) = max p

    Hewitt, Manning & Liang 2022 (ε-sampling). papers.bib: hewitt2022truncation

    The kept set is that of Hugging Face. Differs from the paper: a token of probability exactly ε stays (the
    paper writes p > ε).
    """

    epsilon: float = number(
        6e-4, at_least=0, at_most=1, advice="Common values are 3e-4 … 9e-4; 0 keeps everything."
    )

    def keeps(self, logp_NV: Tensor) -> Tensor:
        logp_NV = precise(logp_NV)
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        return (logp_NV.softmax(dim=-1) >= self.epsilon) & alive(logp_NV) | best_NV


@dataclass(frozen=True)
class Eta(Truncation):
    """Eta sampling: keep tokens above a threshold that falls with the entropy.

        keep x  ⇔  p(x) ≥ min(η, √η · e^(−H))  or  p(x) = max p,     H = −Σ p log p

    Hewitt, Manning & Liang 2022 (η-sampling; the paper's ε is η here, and its α is √ε).
    papers.bib: hewitt2022truncation

    The kept set is that of Hugging Face's code; its docstring puts e^(−H) under the root. Differs from the
    paper: a token exactly at the threshold stays (the paper writes >).
    """

    eta: float = number(
        9e-4, at_least=0, at_most=1, advice="Common values are 3e-4 … 4e-3; 0 keeps everything."
    )

    def keeps(self, logp_NV: Tensor) -> Tensor:
        logp_NV = precise(logp_NV)
        # Normalise again: the tokens left by earlier transforms sum to 1 only up to rounding.
        exact_NV = logp_NV - logp_NV.logsumexp(dim=-1, keepdim=True)
        surprise_NV = -exact_NV.clamp(min=torch.finfo(logp_NV.dtype).min)
        entropy_N1 = (surprise_NV * exact_NV.softmax(dim=-1)).sum(dim=-1, keepdim=True)
        eta = torch.tensor(self.eta, dtype=logp_NV.dtype, device=logp_NV.device)
        threshold_N1 = torch.minimum(eta, eta.sqrt() * (-entropy_N1).exp())
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        return (logp_NV.softmax(dim=-1) >= threshold_N1) & alive(logp_NV) | best_NV


ROUNDING = 1e-9
"""Tolerance, so that rounding does not cut tokens of a uniform row (p = L)."""


@dataclass(frozen=True)
class PLess(Truncation):
    """p-less: keep tokens whose probability is at least that of drawing the same token twice.

        keep x  ⇔  p(x) ≥ L,     L = Σ p²               (p-less)
                                 L = (V·Σ p² − 1)/(V − 1)   (p-less-norm, milder)

    Tan, Wu & Howard 2025 (L[P], and its normalised variant). papers.bib: tan2025pless

    There is nothing to tune: 1/V ≤ L ≤ max p (a uniform row is kept). V counts the whole vocabulary, tokens
    already cut included.
    """

    norm: bool = flag(False, advice="True is the milder p-less-norm.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        p_NV = logp_NV.double().softmax(dim=-1)
        threshold_N1 = p_NV.square().sum(dim=-1, keepdim=True)
        V = logp_NV.shape[1]
        if self.norm and V > 1:
            threshold_N1 = (V * threshold_N1 - 1) / (V - 1)
        return (p_NV >= threshold_N1 * (1 - ROUNDING)) & alive(logp_NV)


@dataclass(frozen=True)
class Kappa(Truncation):
    """The κ rule: a threshold that adapts to the number of probable tokens, relative to the model's width.

        keep x  ⇔  κ p(x) ℓ(x) ≥ g,   where κ solves  Σ_j min(1, κ p_j) = width + 1

    An observation of this project: on SmolLM2, the exact basis-aware test (Finlayson et al. 2024, §4;
    `unspool.basis`) depends little on W. This rule, its first-order form, costs one partial sort and proves
    nothing. g corresponds to τ and grows with it; `BasisTest.calibrate_kappa` fits it to a model. ℓ is 1
    unless row lengths are given (`BasisTest.row_lengths`): V numbers of W that bring the rule closer to the
    test.
    papers.bib: finlayson2024closing

    Symbols: m = width + 1. If fewer than m tokens have probability, κ is infinite and all of them stay.
    """

    g: float = number(at_least=0, advice="0 keeps everything; 0.2 … 40 correspond to τ from 0.01 to 0.9.")
    width: int = integer(at_least=0, advice="Give the width of the model, such as 576.")
    """The width of the model's output layer (or the rank that the exact test would look at)."""
    lengths: RowLengths | None = None
    """ℓ, the row lengths that g was fitted with; None: ℓ = 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lengths is not None and not isinstance(self.lengths, RowLengths):
            raise TypeError(
                f"Kappa.lengths is a {type(self.lengths).__name__}, but must be unspool.basis.RowLengths. "
                f"Take BasisTest(W, rank).row_lengths(p), or say RowLengths(lengths)."
            )

    @classmethod
    def of(cls, rule: KappaRule, tau: float) -> Kappa:
        """The transform of a fitted rule at τ."""
        return cls(rule.threshold(tau), rule.m - 1, rule.lengths)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        logp_NV = precise(logp_NV)
        threshold_N1 = math.log(self.g) - log_kappa(logp_NV, self.width + 1) if self.g else -math.inf
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        alive_NV = alive(logp_NV)
        if self.lengths is not None:
            length_V = torch.tensor(self.lengths.for_vocabulary(logp_NV.shape[1]), device=logp_NV.device)
            logp_NV = logp_NV + length_V.log()
        return (logp_NV >= threshold_N1) & alive_NV | best_NV


def log_kappa(logp_NV: Tensor, m: int) -> Tensor:
    """(N, 1): log κ, +∞ if fewer than m tokens have probability.

    If the r most probable tokens saturate, κ = (m − r) / (mass of the others); r is the first rank whose next
    token does not saturate.
    """
    if m > logp_NV.shape[1]:
        return logp_NV.new_full((len(logp_NV), 1), math.inf)
    top_NM, token_NM = logp_NV.topk(m)
    rest_NV = logp_NV.sub(top_NM[:, -1:]).scatter_(1, token_NM, -math.inf).exp_()
    top_NM = top_NM.double()
    rest_N1 = top_NM[:, -1:] + rest_NV.sum(dim=-1, keepdim=True, dtype=torch.float64).log()
    # Sum from the last token on, to avoid cancellation.
    beyond_NM = torch.cat([top_NM, rest_N1], dim=-1).flip(-1).logcumsumexp(dim=-1).flip(-1)[:, :m]
    log_kappa_NM = (m - torch.arange(m, device=logp_NV.device)).double().log() - beyond_NM
    fits_NM = log_kappa_NM + top_NM <= 0
    # If no rank fits because of rounding, all m saturate.
    log_kappa_N1 = torch.where(
        fits_NM.any(dim=-1, keepdim=True),
        log_kappa_NM.gather(1, fits_NM.int().argmax(dim=-1, keepdim=True)),
        -top_NM[:, -1:],
    )
    return log_kappa_N1.masked_fill(~alive(top_NM[:, -1:]), math.inf).to(logp_NV.dtype)


@dataclass(frozen=True)
class XTC(Checked):
    """XTC, exclude top choices: with some probability, cut all likely tokens except the least likely one.

        L = { x : p(x) ≥ θ };   with probability π, cut all of L but argmin_{x∈L} p(x)

    Weidmann 2024 (papers.bib: weidmann2024xtc).

    θ is `threshold`, π is `probability`. If fewer than two tokens reach θ, nothing is cut; so θ > ½ never
    cuts. Ties: all tokens that tie for the least probable of L stay. `spare`: if one of these tokens would be
    cut, nothing is cut (the author spares line feeds and the end of text). Differs from the original: the
    random draw is a hash of the random stream (`decode.rng`) and the tokens, so that it is the same for the
    same text, seed and sample in any batch.
    """

    threshold: float = number(
        0.1, above=0, at_most=1, advice="The author recommends 0.1; above 0.5 nothing is ever cut."
    )
    probability: float = number(0.5, at_least=0, at_most=1, advice="The author recommends 0.5; 0 never cuts.")
    spare: tuple[int, ...] = token_ids(())
    job: Job | None = field(default=None, init=False, repr=False, compare=False)
    """Bound job; None: every text has the random stream of seed 0."""
    keys: dict[tuple[int, int], int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Keys of the random streams, by request and sample."""

    def bind(self, model: StepModel, job: Job) -> XTC:  # noqa: ARG002
        bound = replace(self)
        set_fields(bound, job=job)
        return bound

    def draw_uniform(self, hypothesis: Hypothesis) -> float:
        """A number in [0, 1) from the random stream and the tokens of a hypothesis."""
        if self.job is None:
            return uniform(stream_key(0, hypothesis.prompt, hypothesis.sample), hypothesis.tokens)
        text = hypothesis.request, hypothesis.sample
        if text not in self.keys:
            self.keys[text] = self.job.stream_key(*text)
        return uniform(self.keys[text], hypothesis.tokens)

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Hypothesis]) -> Tensor:  # noqa: ARG002
        peaks(scores_NV, history)
        within("XTC.spare", self.spare, scores_NV.shape[1])
        is_cutting = [[self.draw_uniform(hypothesis) < self.probability] for hypothesis in history]
        is_cutting_N1 = torch.tensor(is_cutting, device=scores_NV.device)
        p_NV = precise(scores_NV).softmax(dim=-1)
        likely_NV = p_NV >= self.threshold
        least_N1 = p_NV.masked_fill(~likely_NV, math.inf).amin(dim=-1, keepdim=True)
        top_NV = likely_NV & (p_NV > least_N1)
        spared_N1 = top_NV[:, list(self.spare)].any(dim=-1, keepdim=True)
        return cut(scores_NV, ~(top_NV & is_cutting_N1 & ~spared_N1))
