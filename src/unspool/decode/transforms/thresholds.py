"""Threshold sampling: top-k, min-p, top-a, top-nσ, epsilon, eta and p-less cut tokens below a probability."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import flag, integer, number
from unspool.decode.transforms.scores import Truncation, alive, precise


@dataclass(frozen=True)
class TopK(Truncation):
    """Top-k: keep the k most probable tokens.

        keep x  ⇔  p(x) ≥ p₍ₖ₎,    p₍ₖ₎ the k-th largest probability

    Fan, Lewis & Dauphin 2018 (they draw from the k = 10 most probable words).
    papers.bib: fan2018hierarchical

    Ties: every token tied with the k-th stays, so that more than k may survive (as in Hugging Face).
    Differs from Hugging Face: k larger than the vocabulary is an error.
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

    Nguyen, Baker, Neo, Roush, Kirsch & Shwartz-Ziv 2025, §3.
    papers.bib: nguyen2025minp

    The most probable token always stays. m = 0 keeps everything, m = 1 the most probable tokens only.
    Ties: equal probabilities are kept or cut together. The kept set is that of Hugging Face.
    """

    m: float = number(0.05, at_least=0, at_most=1, advice="Common values are 0.02 … 0.2; 0 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.m * p_NV.amax(dim=-1, keepdim=True)) & alive(logp_NV)


@dataclass(frozen=True)
class TopA(Truncation):
    """Top-a: keep tokens above a threshold that grows with the square of the best probability.

        keep x  ⇔  p(x) ≥ a · (max p)²

    BlinkDL 2022 (RWKV-LM, "top-a sampling", a = 0.2 there).
    papers.bib: blinkdl2022topa

    A peaked distribution is cut hard, a flat one almost not. a = 0 keeps everything. Ties: equal
    probabilities are kept or cut together; the most probable token always stays.
    """

    a: float = number(0.2, at_least=0, at_most=1, advice="Common values are 0.1 … 0.5; 0 keeps everything.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.a * p_NV.amax(dim=-1, keepdim=True).square()) & alive(logp_NV)


@dataclass(frozen=True)
class TopNSigma(Truncation):
    """Top-nσ: keep tokens within n standard deviations of the best logit.

        keep x  ⇔  l(x) ≥ max l − n·σ,     σ² = 1/V Σ (l − l̄)²

    Tang, Liu, Xu & Huang 2024 (algorithm 1).
    papers.bib: tang2024topnsigma

    σ and max l − l do not depend on the constant of the logits, so that log-probabilities serve. A
    temperature before it does not change the kept set. Ties: equal probabilities are kept or cut together;
    the most probable token always stays. Differs from the paper: tokens already cut (−∞) count neither in V
    nor in σ (llama.cpp does the same). Differs from the authors' code: σ divides by V, not by V − 1.
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

    Hewitt, Manning & Liang 2022 (ε-sampling).
    papers.bib: hewitt2022truncation

    Ties: equal probabilities are kept or cut together; if every token is below ε, all that tie for the most
    probable stay. The kept set is that of Hugging Face. Differs from the paper: a token of probability
    exactly ε stays (the paper writes p > ε).
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

    Ties: equal probabilities are kept or cut together; if every token is below the threshold, all that tie
    for the most probable stay. The kept set is that of Hugging Face's code; its docstring puts e^(−H) under
    the root. Differs from the paper: a token exactly at the threshold stays (the paper writes >).
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
    """p-less: keep tokens at least as probable as the collision of two independent draws.

        keep x  ⇔  p(x) ≥ L,     L = Σ p²               (p-less)
                                 L = (V·Σ p² − 1)/(V − 1)   (p-less-norm, milder)

    Tan, Wu & Howard 2025 (L[P], and its normalised variant).
    papers.bib: tan2025pless

    There is nothing to tune: 1/V ≤ L ≤ max p (a uniform row is kept), so that the most probable token
    always stays. Ties: equal probabilities are kept or cut together. V
    counts the whole vocabulary, tokens already cut included.
    """

    norm: bool = flag(False, advice="True is the milder p-less-norm.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        p_NV = logp_NV.double().softmax(dim=-1)
        threshold_N1 = p_NV.square().sum(dim=-1, keepdim=True)
        V = logp_NV.shape[1]
        if self.norm and V > 1:
            threshold_N1 = (V * threshold_N1 - 1) / (V - 1)
        return (p_NV >= threshold_N1 * (1 - ROUNDING)) & alive(logp_NV)
