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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from heapq import heappush, heappushpop
from math import inf, isinf, sqrt

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from unspool.basis import BasisTest
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


# The setting of a rule that rejects a given share of tokens, from the strictest one that each survives.
#
#     of N critical settings, in the order in which a rule grows stricter, ⌊share·N⌋ are passed over
#
# Tokens with equal critical settings are rejected together or not at all, so that fewer may be rejected than
# asked for; never more. On other text of the same kind the share differs: the 95 % interval of a share of N
# tokens (Wilson's) says by how much. It counts tokens as independent, which those of one text are not quite.


@dataclass(frozen=True)
class Match:
    """A sampler, set so that it rejects a share of the tokens of a text."""

    sampler: str
    setting: float
    decoder: str
    """As `unspool.parse` reads it."""
    share: float
    """The share of tokens that was to be rejected …"""
    rejected: float
    """… and the one that is."""
    tokens: int
    """How many tokens that was measured on."""
    low: float
    high: float
    """The 95 % interval of the share that is rejected of other text of the same kind."""


class First:
    """The first critical settings that a rule passes over as it grows stricter: as many as are needed."""

    def __init__(self, criterion: Criterion, shares: Sequence[float], tokens: int) -> None:
        self.criterion = criterion
        self.tokens = tokens
        self._count = max(_passed(share, tokens) for share in shares) + 1
        self._sign = 1 if criterion.rising else -1
        self._heap: list[float] = []

    def needs(self, critical: float) -> bool:
        """Whether a token that survives this setting, and maybe stricter ones, may be among the first."""
        return len(self._heap) < self._count or self._sign * critical < -self._heap[0]

    def push(self, critical: float) -> None:
        """Take one more token into account."""
        self.extend([critical])

    def extend(self, criticals: Iterable[float]) -> None:
        """Take more tokens into account."""
        for critical in criticals:
            key = -self._sign * critical
            if len(self._heap) < self._count:
                heappush(self._heap, key)
            elif key > self._heap[0]:
                heappushpop(self._heap, key)

    def match(self, share: float) -> Match:
        """The setting that rejects this share."""
        order = sorted(-key for key in self._heap)
        survivor = order[_passed(share, self.tokens)]
        rejected = sum(key < survivor for key in order)
        before = order[rejected - 1] if rejected else self._sign * self.criterion.loosest
        setting = self._sign * (survivor if self.criterion.whole else _between(before, survivor))
        decoder = self.criterion.decoder(setting)
        low, high = share_interval(rejected, self.tokens)
        return Match(
            self.criterion.name, setting, decoder, share, rejected / self.tokens, self.tokens, low, high
        )


def share_interval(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share: [p + z²/2n ± z √(p(1−p)/n + z²/4n²)] / (1 + z²/n)."""
    p, scale = count / of, 1 + z * z / of
    middle = p + z * z / (2 * of)
    reach = z * sqrt(p * (1 - p) / of + (z / (2 * of)) ** 2)
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def _passed(share: float, tokens: int) -> int:
    if not 0 <= share < 1:
        raise ValueError(f"share is {share}, but must be at least 0 and below 1, such as 0.01 for 1 %.")
    return int(share * tokens + 1e-9)


def _between(before: float, after: float) -> float:
    """Halfway, where neither rounding nor "<" against "≤" changes what is rejected; or well beyond."""
    if isinf(before):
        return after - max(abs(after), 1.0)
    return before + max(abs(before), 1.0) if isinf(after) else (before + after) / 2


# The bracket around τ* is this narrow: a setting is matched to a hundredth of itself.
RTOL = 1e-2


@cache
def _blas() -> ThreadpoolController:
    """numpy's threads: on products this small they only stall beside torch's."""
    return ThreadpoolController()


class BasisCriticals:
    """Collects the critical settings of basis-aware sampling over a text.

    The strictest setting of basis-aware sampling that a token survives, by exact tests on its critical τ.

        BA-ε   τ*                                      survives ⇔ τ ≤ τ*
        BA-η   η* = max(τ*, (τ*·e^H)²)                 survives ⇔ η ≤ η*
        BA-p   p* = mass of the tokens with p > τ*     survives ⇔ p > p*

    τ* is where the test's verdict on the token flips: it is at least the token's own probability, which needs
    no test. So a token whose probability alone puts it beyond the share of interest is not tested at all, and
    the verdicts on the others are exact.

    Finlayson et al. 2024, §5–6. papers.bib: finlayson2024closing
    Differs from the paper's code: η is inverted as it is defined (it is the larger of two thresholds' roots).
    """

    def __init__(self, test: BasisTest, rank: int | None, shares: Sequence[float], tokens: int) -> None:
        self.test = test
        self.tested = 0
        self._constant, self._eta, self._nucleus = (
            First(criterion, shares, tokens) for criterion in basis_criteria(rank)
        )

    def extend(self, at: Places) -> None:
        """Take the tokens at these places into account."""
        with _blas().limit(limits=1):
            for n in range(len(at.token_N)):
                self._push(at.logp_NV[n].double(), int(at.token_N[n]), at.entropy_N[n])

    def matches(self, share: float) -> list[Match]:
        """The settings that reject this share."""
        return [first.match(share) for first in (self._constant, self._eta, self._nucleus)]

    def _push(self, logp_V: Tensor, token: int, entropy: Tensor) -> None:
        p_V = logp_V.exp()
        tau = float(p_V[token])
        firsts = (self._constant, self._eta, self._nucleus)
        loosest = _settings(tau, p_V, entropy)
        # A more probable token than all that matter: its τ* can only be larger.
        if tau > 0 and any(first.needs(setting) for first, setting in zip(firsts, loosest, strict=True)):
            self.tested += 1
            tau = max(tau, self.test.critical_tau(p_V.numpy(), token, rtol=RTOL)[0])
        for first, setting in zip(firsts, _settings(tau, p_V, entropy), strict=True):
            first.push(setting)


def _settings(tau: float, p_V: Tensor, entropy: Tensor) -> tuple[float, float, float]:
    """The critical τ, η and p of a token whose verdict flips at τ."""
    eta = eta_of(torch.tensor(tau, dtype=torch.float64), entropy)
    return tau, float(eta), float(p_V[p_V > tau].sum())


def basis_criteria(rank: int | None) -> tuple[Criterion, Criterion, Criterion]:
    """BA-ε, BA-η and BA-nucleus at a rank."""
    return (
        Criterion("BA-ε", f"Sample(BasisAware({{}}, rank={rank}))", rising=True, loosest=0.0),
        Criterion("BA-η", f"Sample(BasisAware(EtaTau({{}}), rank={rank}))", rising=True, loosest=0.0),
        Criterion("BA-p", f"Sample(BasisAware(NucleusTau({{}}), rank={rank}))", rising=False, loosest=1.0),
    )
