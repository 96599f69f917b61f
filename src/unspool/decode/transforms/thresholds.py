"""Top-k: keep the k most probable tokens.

    keep x  ⇔  p(x) ≥ p₍ₖ₎,    p₍ₖ₎ the k-th largest probability

Fan, Lewis & Dauphin 2018 (their generation draws from the k = 10 most probable words).
papers.bib: fan2018hierarchical

Ties: every token tied with the k-th stays, so that more than k may survive (as in Hugging Face).
Differs from Hugging Face: k larger than the vocabulary is an error, not silently the whole vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import check_bool, check_int, check_number
from unspool.decode.transforms.scores import Truncation, alive, precise


@dataclass(frozen=True)
class TopK(Truncation):
    """Keep the k most probable tokens."""

    k: int = 50

    def __post_init__(self) -> None:
        check_int(self, "k", at_least=1, advice="To keep everything, leave TopK out.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the k most probable tokens of each row and all that tie with the k-th."""
        V = logp_NV.shape[-1]
        if self.k > V:
            raise ValueError(
                f"TopK.k is {self.k}, but the vocabulary has {V} tokens. "
                f"Choose k ≤ {V}, or leave TopK out to keep everything."
            )
        # The smallest finite number and not −∞, so that a token that was cut does not tie with the k-th.
        least_N1 = logp_NV.topk(self.k).values[:, -1:].clamp(min=torch.finfo(logp_NV.dtype).min)
        return logp_NV >= least_N1


@dataclass(frozen=True)
class MinP(Truncation):
    """Keep tokens at least m times as probable as the best.

    Min-p: keep the tokens that are not much less probable than the best one.

        keep x  ⇔  p(x) ≥ m · max p

    Nguyen, Baker, Neo, Roush, Kirsch & Shwartz-Ziv 2025, §3.
    papers.bib: nguyen2025minp

    The most probable token always stays. m = 0 keeps everything, m = 1 the most probable tokens only.
    Ties: equal probabilities are kept or cut together. The kept set is that of Hugging Face.
    """

    m: float = 0.05

    def __post_init__(self) -> None:
        check_number(
            self,
            "m",
            at_least=0,
            at_most=1,
            advice="Common values are 0.02 … 0.2; 0 keeps everything.",
        )

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p ≥ m · max p."""
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.m * p_NV.amax(dim=-1, keepdim=True)) & alive(logp_NV)


@dataclass(frozen=True)
class TopA(Truncation):
    """Keep tokens of probability a · (max p)² or more.

    Top-a: a threshold that grows with the square of the best probability.

        keep x  ⇔  p(x) ≥ a · (max p)²

    BlinkDL 2022 (RWKV-LM, "top-a sampling", a = 0.2 there).
    papers.bib: blinkdl2022topa

    Where the model is sure, little but the best survives; where it is not, almost everything does. a = 0
    keeps everything. Ties: equal probabilities are kept or cut together; the most probable token always
    stays.
    """

    a: float = 0.2

    def __post_init__(self) -> None:
        check_number(
            self, "a", at_least=0, at_most=1, advice="Common values are 0.1 … 0.5; 0 keeps everything."
        )

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p ≥ a · (max p)²."""
        p_NV = precise(logp_NV).softmax(dim=-1)
        return (p_NV >= self.a * p_NV.amax(dim=-1, keepdim=True).square()) & alive(logp_NV)


@dataclass(frozen=True)
class TopNSigma(Truncation):
    """Keep tokens whose logit is at least max − n·σ.

    Top-nσ: keep the tokens within n standard deviations of the best logit.

        keep x  ⇔  l(x) ≥ max l − n·σ,     σ² = 1/V Σ (l − l̄)²

    Tang, Liu, Xu & Huang 2024 (algorithm 1).
    papers.bib: tang2024topnsigma

    Logits are known only up to a constant, and σ and max l − l do not depend on it: log-probabilities serve.
    The kept set does not change with a temperature before it. Ties: equal probabilities are kept or cut
    together; the most probable token always stays. Differs from the paper: tokens already cut (−∞) count
    neither in V nor in σ (llama.cpp does the same), and σ divides by V where the authors' code divides by V −
    1.
    """

    n: float = 1.0

    def __post_init__(self) -> None:
        check_number(self, "n", above=0, advice="Common values are 1 … 2; larger keeps more.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True within n standard deviations of the best."""
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
    """Keep tokens of probability ε or more.

    Epsilon sampling: keep the tokens above a fixed probability.

        keep x  ⇔  p(x) ≥ ε  or  p(x) = max p

    Hewitt, Manning & Liang 2022 (ε-sampling).
    papers.bib: hewitt2022truncation

    Ties: equal probabilities are kept or cut together; where every token is below ε, all that tie for the
    most probable stay. The kept set is that of Hugging Face. Differs from the paper: a token of probability
    exactly ε stays (the paper writes p > ε).
    """

    epsilon: float = 6e-4

    def __post_init__(self) -> None:
        advice = "Common values are 3e-4 … 9e-4; 0 keeps everything."
        check_number(self, "epsilon", at_least=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p ≥ ε, and for the most probable tokens."""
        logp_NV = precise(logp_NV)
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        return (logp_NV.softmax(dim=-1) >= self.epsilon) & alive(logp_NV) | best_NV


@dataclass(frozen=True)
class Eta(Truncation):
    """Keep tokens of probability min(η, √η · e^(−H)) or more.

    Eta sampling: keep the tokens above a probability that falls where the model is unsure.

        keep x  ⇔  p(x) ≥ min(η, √η · e^(−H))  or  p(x) = max p,     H = −Σ p log p

    Hewitt, Manning & Liang 2022 (η-sampling; the paper's ε is η here, and its α is √ε).
    papers.bib: hewitt2022truncation

    Ties: equal probabilities are kept or cut together; where every token is below the threshold, all that tie
    for the most probable stay. The kept set is that of Hugging Face's code; its docstring puts e^(−H) under
    the root. Differs from the paper: a token exactly at the threshold stays (the paper writes >).
    """

    eta: float = 9e-4

    def __post_init__(self) -> None:
        advice = "Common values are 3e-4 … 4e-3; 0 keeps everything."
        check_number(self, "eta", at_least=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p reaches the row's threshold, and for the most probable tokens."""
        logp_NV = precise(logp_NV)
        # Normalised once more: survivors of earlier rules sum to 1 only up to rounding.
        exact_NV = logp_NV - logp_NV.logsumexp(dim=-1, keepdim=True)
        surprise_NV = -exact_NV.clamp(min=torch.finfo(logp_NV.dtype).min)
        entropy_N1 = (surprise_NV * exact_NV.softmax(dim=-1)).sum(dim=-1, keepdim=True)
        eta = torch.tensor(self.eta, dtype=logp_NV.dtype, device=logp_NV.device)
        threshold_N1 = torch.minimum(eta, eta.sqrt() * (-entropy_N1).exp())
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        return (logp_NV.softmax(dim=-1) >= threshold_N1) & alive(logp_NV) | best_NV


ROUNDING = 1e-9
"""Rounding must not cut the tokens of a uniform row, where p = L."""


@dataclass(frozen=True)
class PLess(Truncation):
    """Keep tokens of probability Σ p² or more.

    p-less: keep the tokens at least as probable as two independent draws are to agree.

        keep x  ⇔  p(x) ≥ L,     L = Σ p²               (p-less)
                                 L = (V·Σ p² − 1)/(V − 1)   (p-less-norm, milder)

    Tan, Wu & Howard 2025 (L[P], and its normalised variant).
    papers.bib: tan2025pless

    No parameter to tune: L lies between 1/V (uniform: everything stays) and 1 (one token), and never above
    max p, so the most probable token always stays. Ties: equal probabilities are kept or cut together. V
    counts the whole vocabulary, tokens already cut included.
    """

    norm: bool = False

    def __post_init__(self) -> None:
        check_bool(self, "norm", advice="True is the milder p-less-norm; there is nothing else to set.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p reaches the collision probability."""
        p_NV = logp_NV.double().softmax(dim=-1)
        threshold_N1 = p_NV.square().sum(dim=-1, keepdim=True)
        V = logp_NV.shape[1]
        if self.norm and V > 1:
            threshold_N1 = (V * threshold_N1 - 1) / (V - 1)
        return (p_NV >= threshold_N1 * (1 - ROUNDING)) & alive(logp_NV)
