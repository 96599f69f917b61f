"""The strictest setting of each truncation under which a given token y survives, in closed form.

    top-k      k* = 1 + |{x : p(x) > p(y)}|                        survives ⇔ k ≥ k*
    top-p      p* = mass of the tokens ranked before y             survives ⇔ p > p*
    typical    τ* = mass of the tokens with a surprise nearer to H survives ⇔ τ > τ*
    top-nσ     n* = (max log p − log p(y)) / σ                     survives ⇔ n ≥ n*
    epsilon    ε* = p(y)                                           survives ⇔ ε ≤ ε*
    min-p      m* = p(y) / max p                                   survives ⇔ m ≤ m*
    top-a      a* = p(y) / (max p)²                                survives ⇔ a ≤ a*
    eta        η* = max(p(y), (p(y)·e^H)²)                         survives ⇔ η ≤ η*
    κ          g* = κ·p(y)                                         survives ⇔ g ≤ g*

Each follows from the definition of the rule, in `unspool.decode.transforms`. For η: p ≥ min(η, √η·e^(−H))
⇔ p ≥ η or p·e^H ≥ √η. A token that a rule always keeps (the most probable one) survives every setting.

Matching parameters by the human tokens that they reject: Hewitt, Manning & Liang 2022, §5; Finlayson et al.
2024, §6. papers.bib: hewitt2022truncation, finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf

import torch
from torch import Tensor

from unspool.decode.transforms.kappa import log_kappa


@dataclass(frozen=True)
class Criterion:
    """A truncation with one setting, of which every token has a strictest one that it survives."""

    name: str
    spec: str
    """The decoder, with {} for the setting."""
    rising: bool
    """Whether a larger setting cuts more."""
    loosest: float
    """The setting that cuts nothing."""
    whole: bool = False

    def rejects(self, setting: float, critical_N: Tensor) -> Tensor:
        """Of tokens with these critical settings, which are cut."""
        if self.rising:
            return critical_N < setting
        # The loosest setting cuts nothing, whatever rounding says.
        return critical_N > setting if self.whole or setting == self.loosest else critical_N >= setting

    def decoder(self, setting: float) -> str:
        """The decoder at a setting, as `unspool.parse` reads it."""
        if self.whole:
            return self.spec.format(round(setting))
        short = f"{setting:.6g}"
        # 0.99999999 must not become 1, which would cut nothing at all.
        return self.spec.format(repr(setting) if float(short) == self.loosest != setting else short)


Critical = Callable[["Places"], Tensor]


@dataclass(frozen=True)
class Places:
    """The model's distributions at N places, the tokens that stand there, and what the rules look at."""

    logp_NV: Tensor
    token_N: Tensor

    @cached_property
    def p_NV(self) -> Tensor:
        """The probabilities, in float64."""
        return self.logp_NV.double().exp()

    @cached_property
    def logp_N1(self) -> Tensor:
        """log p of the tokens that stand there."""
        return self.logp_NV.gather(1, self.token_N[:, None])

    @cached_property
    def p_N(self) -> Tensor:
        """p of the tokens that stand there."""
        return self.logp_N1[:, 0].double().exp()

    @cached_property
    def best_N(self) -> Tensor:
        """The largest log p of each row."""
        return self.logp_NV.amax(dim=-1)

    @cached_property
    def is_best_N(self) -> Tensor:
        """Whether no token is more probable."""
        return self.logp_N1[:, 0] >= self.best_N

    @cached_property
    def entropy_N(self) -> Tensor:
        """H, in nats."""
        return -(self.p_NV * self.logp_NV.clamp(min=torch.finfo(self.logp_NV.dtype).min)).sum(dim=-1)


def top_k(at: Places) -> Tensor:
    """The rank, tokens that tie with y not counted."""
    return (at.logp_NV > at.logp_N1).sum(dim=-1).double() + 1


def top_p(at: Places) -> Tensor:
    """The mass ranked before y: among equals, the lower id goes first."""
    tied_NV = at.logp_NV == at.logp_N1
    first_NV = torch.arange(at.logp_NV.shape[1], device=at.logp_NV.device) < at.token_N[:, None]
    return _mass(at, (at.logp_NV > at.logp_N1) | (tied_NV & first_NV))


def typical(at: Places) -> Tensor:
    """The mass of more typical tokens."""
    # In the precision of the rule itself: equal distances must be equal here, too.
    entropy_N1 = -(at.logp_NV * at.logp_NV.exp()).nansum(dim=-1, keepdim=True)
    distance_NV = (-at.logp_NV - entropy_N1).abs()
    return _mass(at, distance_NV < distance_NV.gather(1, at.token_N[:, None]))


def top_n_sigma(at: Places) -> Tensor:
    """How many standard deviations y lies below the best token."""
    below_NV = (at.best_N[:, None] - at.logp_NV).double()
    there_NV = below_NV < inf
    size_N = there_NV.sum(dim=-1)
    below_NV = below_NV.masked_fill(~there_NV, 0)
    mean_N = below_NV.sum(dim=-1) / size_N
    sigma_N = (below_NV.square().sum(dim=-1) / size_N - mean_N.square()).clamp(min=0).sqrt()
    return ((at.best_N - at.logp_N1[:, 0]).double() / sigma_N).masked_fill(at.is_best_N, 0.0)


def epsilon(at: Places) -> Tensor:
    """The probability itself."""
    return at.p_N.masked_fill(at.is_best_N, 1.0)


def min_p(at: Places) -> Tensor:
    """The probability relative to the best."""
    return at.p_N / at.best_N.double().exp()


def top_a(at: Places) -> Tensor:
    """The probability relative to the square of the best."""
    return (at.p_N / at.best_N.double().exp().square()).clamp(max=1.0)


def eta(at: Places) -> Tensor:
    """max(p, (p·e^H)²)."""
    return eta_of(at.p_N, at.entropy_N).masked_fill(at.is_best_N, 1.0)


def eta_of(threshold_N: Tensor, entropy_N: Tensor) -> Tensor:
    """The η at which min(η, √η·e^(−H)) is `threshold_N`: the inverse of the η rule; 1 is the largest η."""
    return torch.maximum(threshold_N, (threshold_N * entropy_N.exp()).square()).clamp(max=1.0)


def kappa(width: int) -> Critical:
    """κ·p, for a model of some width."""

    def critical(at: Places) -> Tensor:
        scaled_N = (log_kappa(at.logp_NV, width + 1)[:, 0] + at.logp_N1[:, 0]).double().exp()
        return scaled_N.masked_fill(at.is_best_N, inf)

    return critical


def _mass(at: Places, which_NV: Tensor) -> Tensor:
    return (at.p_NV * which_NV).sum(dim=-1) / at.p_NV.sum(dim=-1)


CRITERIA: dict[Criterion, Critical] = {
    Criterion("top-k", "Sample(TopK({}))", rising=False, loosest=inf, whole=True): top_k,
    Criterion("top-p", "Sample(TopP({}))", rising=False, loosest=1.0): top_p,
    Criterion("typical", "Sample(Typical({}))", rising=False, loosest=1.0): typical,
    Criterion("top-nσ", "Sample(TopNSigma({}))", rising=False, loosest=inf): top_n_sigma,
    Criterion("epsilon", "Sample(Epsilon({}))", rising=True, loosest=0.0): epsilon,
    Criterion("min-p", "Sample(MinP({}))", rising=True, loosest=0.0): min_p,
    Criterion("top-a", "Sample(TopA({}))", rising=True, loosest=0.0): top_a,
    Criterion("eta", "Sample(Eta({}))", rising=True, loosest=0.0): eta,
}


def criteria(width: int | None) -> dict[Criterion, Critical]:
    """Every criterion; the κ rule is among them where the model's width is known."""
    if width is None:
        return CRITERIA
    spec = f"Sample(Kappa({{}}, {width}))"
    return {**CRITERIA, Criterion("kappa", spec, rising=True, loosest=0.0): kappa(width)}
