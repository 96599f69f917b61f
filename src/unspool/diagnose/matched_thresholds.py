"""Parameter matching: the setting of each sampler that rejects a given share of human tokens.

    share(θ) = 1/N Σ_t [ the sampler at θ rejects y_t after y_{<t} ]

Samplers can be compared at equal shares of rejected human tokens. The model reads the text once. Each share
is monotonic in the setting, so the settings follow exactly from the strictest one that keeps each token y:

    top-k      k* = 1 + |{x : p(x) > p(y)}|                        survives ⇔ k ≥ k*
    top-p      p* = mass of the tokens ranked before y             survives ⇔ p > p*
    typical    τ* = mass of the tokens with a surprise nearer to H survives ⇔ τ > τ*
    top-nσ     n* = (max log p − log p(y)) / σ                     survives ⇔ n ≥ n*
    epsilon    ε* = p(y)                                           survives ⇔ ε ≤ ε*
    min-p      m* = p(y) / max p                                   survives ⇔ m ≤ m*
    top-a      a* = p(y) / (max p)²                                survives ⇔ a ≤ a*
    eta        η* = max(p(y), (p(y)·e^H)²)                         survives ⇔ η ≤ η*
    κ          g* = κ·p(y)                                         survives ⇔ g ≤ g*

Each follows from the definition of the rule in `unspool.decode.transforms`. For η: p ≥ min(η, √η·e^(−H))
⇔ p ≥ η or p·e^H ≥ √η. The most probable token survives every setting.

Hewitt, Manning & Liang 2022, §5; Finlayson et al. 2024, §6.
papers.bib: hewitt2022truncation, finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import heappush, heappushpop
from math import inf, isinf
from typing import Literal

import torch
from scipy.stats import binomtest
from torch import Tensor

from unspool.arguments import as_int, as_number, function_of, items, shown
from unspool.basis import BasisTest
from unspool.basis.work import one_blas_thread
from unspool.decode.picks import AUTO_RANK
from unspool.decode.transforms.thresholds import log_kappa
from unspool.evaluate.teacher_forcing import Window, forced, read
from unspool.interfaces import StepModel


@dataclass(frozen=True)
class Criterion:
    """A truncation with one setting."""

    name: str
    spec: str
    """Decoder string, with {} for the setting."""
    loosest: float
    """The setting that keeps all tokens."""
    is_integer: bool = False

    @property
    def is_rising(self) -> bool:
        """Whether a larger setting rejects more."""
        return self.loosest == 0

    def rejects(self, setting: float, critical_N: Tensor) -> Tensor:
        """Return for each critical setting whether its token is rejected."""
        if self.is_rising:
            return critical_N < setting
        # The loosest setting keeps all tokens in spite of rounding.
        return critical_N > setting if self.is_integer or setting == self.loosest else critical_N >= setting

    def decoder(self, setting: float) -> str:
        """Return the decoder string for `unspool.parse`."""
        if self.is_integer:
            return self.spec.format(round(setting))
        short = f"{setting:.6g}"
        # 0.99999999 must not be rounded to 1, which would keep all tokens.
        return self.spec.format(repr(setting) if float(short) == self.loosest != setting else short)


Critical = Callable[["Positions"], Tensor]


@dataclass(frozen=True)
class Positions:
    """The model's distributions at N positions, the tokens there, and derived quantities."""

    logp_NV: Tensor
    token_N: Tensor

    @cached_property
    def p_NV(self) -> Tensor:
        """Probabilities in float64."""
        return self.logp_NV.double().exp()

    @cached_property
    def logp_N1(self) -> Tensor:
        """log p of the tokens."""
        return self.logp_NV.gather(1, self.token_N[:, None])

    @cached_property
    def p_N(self) -> Tensor:
        """p of the tokens."""
        return self.logp_N1[:, 0].double().exp()

    @cached_property
    def best_N(self) -> Tensor:
        """Largest log p of each row."""
        return self.logp_NV.amax(dim=-1)

    @cached_property
    def is_best_N(self) -> Tensor:
        """Whether the token is the most probable one."""
        return self.logp_N1[:, 0] >= self.best_N

    @cached_property
    def entropy_N(self) -> Tensor:
        """H in nats."""
        return -(self.p_NV * self.logp_NV.clamp(min=torch.finfo(self.logp_NV.dtype).min)).sum(dim=-1)


def _mass(positions: Positions, which_NV: Tensor) -> Tensor:
    return (positions.p_NV * which_NV).sum(dim=-1) / positions.p_NV.sum(dim=-1)


def _mass_before(positions: Positions) -> Tensor:
    """Mass ranked before y; among equals the lower id ranks first."""
    first_NV = (
        torch.arange(positions.logp_NV.shape[1], device=positions.logp_NV.device) < positions.token_N[:, None]
    )
    tied_NV = positions.logp_NV == positions.logp_N1
    return _mass(positions, (positions.logp_NV > positions.logp_N1) | (tied_NV & first_NV))


def _mass_more_typical(positions: Positions) -> Tensor:
    # Use the precision of the transform, so that equal distances stay equal.
    entropy_N1 = -(positions.logp_NV * positions.logp_NV.exp()).nansum(dim=-1, keepdim=True)
    distance_NV = (-positions.logp_NV - entropy_N1).abs()
    return _mass(positions, distance_NV < distance_NV.gather(1, positions.token_N[:, None]))


def _sigmas_below_best(positions: Positions) -> Tensor:
    below_NV = (positions.best_N[:, None] - positions.logp_NV).double()
    there_NV = below_NV < inf
    size_N = there_NV.sum(dim=-1)
    below_NV = below_NV.masked_fill(~there_NV, 0)
    mean_N = below_NV.sum(dim=-1) / size_N
    sigma_N = (below_NV.square().sum(dim=-1) / size_N - mean_N.square()).clamp(min=0).sqrt()
    return ((positions.best_N - positions.logp_N1[:, 0]).double() / sigma_N).masked_fill(
        positions.is_best_N, 0.0
    )


def eta_of(threshold_N: Tensor, entropy_N: Tensor) -> Tensor:
    """Return the η for which min(η, √η·e^(−H)) is `threshold_N`; it can be above 1."""
    return torch.maximum(threshold_N, (threshold_N * entropy_N.exp()).square())


def _kappa(width: int, positions: Positions) -> Tensor:
    scaled_N = (log_kappa(positions.logp_NV, width + 1)[:, 0] + positions.logp_N1[:, 0]).double().exp()
    return scaled_N.masked_fill(positions.is_best_N, inf)


CRITERIA: dict[Criterion, Critical] = {
    Criterion("top-k", "Sample(TopK({}))", loosest=inf, is_integer=True): lambda positions: (
        (positions.logp_NV > positions.logp_N1).sum(dim=-1).double() + 1
    ),
    Criterion("top-p", "Sample(TopP({}))", loosest=1.0): _mass_before,
    Criterion("typical", "Sample(Typical({}))", loosest=1.0): _mass_more_typical,
    Criterion("top-nσ", "Sample(TopNSigma({}))", loosest=inf): _sigmas_below_best,
    Criterion("epsilon", "Sample(Epsilon({}))", loosest=0.0): lambda positions: positions.p_N.masked_fill(
        positions.is_best_N, 1.0
    ),
    Criterion("min-p", "Sample(MinP({}))", loosest=0.0): lambda positions: (
        positions.p_N / positions.best_N.double().exp()
    ),
    Criterion("top-a", "Sample(TopA({}))", loosest=0.0): lambda positions: (
        positions.p_N / positions.best_N.double().exp().square()
    ).clamp(max=1.0),
    Criterion("eta", "Sample(Eta({}))", loosest=0.0): lambda positions: (
        eta_of(positions.p_N, positions.entropy_N).clamp(max=1.0).masked_fill(positions.is_best_N, 1.0)
    ),
}


def criteria(width: int | None) -> dict[Criterion, Critical]:
    """Return all criteria; the κ rule only if the width of the model is known."""
    if width is None:
        return CRITERIA
    spec = f"Sample(Kappa({{}}, {width}))"
    return {**CRITERIA, Criterion("kappa", spec, loosest=0.0): partial(_kappa, width)}


@dataclass(frozen=True)
class Match:
    """A sampler with the setting that rejects a share of the tokens of a text."""

    sampler: str
    setting: float
    decoder: str
    """String for `unspool.parse`."""
    share: float
    """Requested share of rejected tokens."""
    rejected: float
    """Actual share; smaller if tokens tie."""
    tokens: int
    """Number of measured tokens."""
    low: float
    high: float
    """Wilson's 95 % interval of the share on other text of the same kind, for independent tokens."""


class StrictestSettings:
    """Collects the critical settings of the tokens that a rule rejects first.

    Of N critical settings, sorted as the rule becomes stricter, the first ⌊share·N⌋ are rejected. Tokens with
    equal critical settings are rejected together or not at all, so fewer may be rejected, but never more.
    """

    def __init__(self, criterion: Criterion, shares: Sequence[float], tokens: int) -> None:
        self.criterion = criterion
        self.tokens = tokens
        self._count = max(_count_rejected(share, tokens) for share in shares) + 1
        self._sign = 1 if criterion.is_rising else -1
        self._heap: list[float] = []

    def needs(self, critical: float) -> bool:
        """Whether a token with this critical setting, or a stricter one, can be among the first."""
        return len(self._heap) < self._count or self._sign * critical < -self._heap[0]

    def extend(self, criticals: Iterable[float]) -> None:
        """Add critical settings."""
        for critical in criticals:
            key = -self._sign * critical
            if len(self._heap) < self._count:
                heappush(self._heap, key)
            elif key > self._heap[0]:
                heappushpop(self._heap, key)

    def match(self, share: float) -> Match:
        """Return the setting that rejects this share."""
        order = sorted(-key for key in self._heap)
        survivor = order[_count_rejected(share, self.tokens)]
        rejected = sum(key < survivor for key in order)
        before = order[rejected - 1] if rejected else self._sign * self.criterion.loosest
        setting = self._sign * (survivor if self.criterion.is_integer else _midpoint(before, survivor))
        decoder = self.criterion.decoder(setting)
        measured = (rejected / self.tokens, self.tokens, *share_interval(rejected, self.tokens))
        return Match(self.criterion.name, setting, decoder, share, *measured)


def share_interval(count: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    interval = binomtest(count, of).proportion_ci(0.95, "wilson")
    return float(interval.low), float(interval.high)


def _count_rejected(share: float, tokens: int) -> int:
    if not 0 <= share < 1:
        raise ValueError(f"share is {share}, but must be at least 0 and below 1, such as 0.01 for 1 %")
    return int(share * tokens + 1e-9)


def _midpoint(before: float, after: float) -> float:
    """Return a setting between two critical ones, so that rounding does not change the rejected tokens."""
    if isinf(before):
        return after - max(abs(after), 1.0)
    return before + max(abs(before), 1.0) if isinf(after) else (before + after) / 2


RTOL = 1e-2
"""Relative width of the bracket around τ*."""


class BasisCriticals:
    """Collects the critical settings of basis-aware sampling, by exact tests of each token's critical τ.

        BA-ε   τ*                                      survives ⇔ τ ≤ τ*
        BA-η   η* = max(τ*, (τ*·e^H)²)                 survives ⇔ η ≤ η*
        BA-p   p* = mass of the tokens with p > τ*     survives ⇔ p > p*

    τ* is the threshold at which the test rejects the token. It is at least the token's probability, so tokens
    whose probability already exceeds the settings of interest need no test.

    Finlayson et al. 2024, §5–6. papers.bib: finlayson2024closing
    Differs from the paper's code: η is the exact inverse, the larger of the two solutions.
    """

    def __init__(self, test: BasisTest, rank: int | None, shares: Sequence[float], tokens: int) -> None:
        self.test = test
        self.tested = 0
        self._collectors = [
            StrictestSettings(criterion, shares, tokens) for criterion in basis_criteria(rank)
        ]

    def extend(self, positions: Positions) -> None:
        """Add the tokens at these positions."""
        with one_blas_thread():
            for n in range(len(positions.token_N)):
                self._push(positions.logp_NV[n].double(), int(positions.token_N[n]), positions.entropy_N[n])

    def matches(self, share: float) -> list[Match]:
        """Return the settings that reject this share."""
        return [collector.match(share) for collector in self._collectors]

    def _push(self, logp_V: Tensor, token: int, entropy: Tensor) -> None:
        p_V = logp_V.exp()
        tau = float(p_V[token])
        loosest = zip(self._collectors, _settings(tau, p_V, entropy), strict=True)
        # The lower bound suffices if even it is beyond the settings of interest.
        if tau > 0 and any(collector.needs(setting) for collector, setting in loosest):
            self.tested += 1
            tau = max(tau, self.test.critical_tau(p_V.numpy(), token, rtol=RTOL)[0])
        for collector, setting in zip(self._collectors, _settings(tau, p_V, entropy), strict=True):
            collector.extend([setting])


def _settings(tau: float, p_V: Tensor, entropy: Tensor) -> tuple[float, float, float]:
    """Return the critical τ, η and p of a token with critical threshold τ."""
    eta = eta_of(torch.tensor(tau, dtype=torch.float64), entropy)
    return tau, float(eta), float(p_V[p_V > tau].sum())


def basis_criteria(rank: int | None) -> tuple[Criterion, Criterion, Criterion]:
    """Return the criteria of BA-ε, BA-η and BA-nucleus at a rank."""
    return (
        Criterion("BA-ε", f"Sample(BasisAware({{}}, rank={rank}))", loosest=0.0),
        Criterion("BA-η", f"Sample(BasisAware(EtaTau({{}}), rank={rank}))", loosest=0.0),
        Criterion("BA-p", f"Sample(BasisAware(NucleusTau({{}}), rank={rank}))", loosest=1.0),
    )


CHUNK = 64
"""Positions per step; it limits the memory for float64 distributions."""


def thresholds(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    shares: Sequence[float] = (0.01,),
    *,
    sources: Sequence[str | Sequence[int]] | None = None,
    rank: int | Literal["auto"] | None = "auto",
    basis_tokens: int = 2000,
    context: int | None = None,
    batch: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> list[Match]:
    """Match every sampler to every share, on texts (strings or token ids).

    The closed forms use every token but the first of each text. The exact basis-aware tests take longer: they
    use `basis_tokens` evenly spaced tokens (0: none) and `rank` directions ("auto": at most 20; None: all),
    and need a model with an output matrix. An encoder–decoder needs `sources`, one per text; all tokens of
    the targets count. `progress` is called with the number of processed tokens and of all tokens.
    """
    shares = items("shares", shares, "a list of shares such as 0.01")
    if not shares:
        raise ValueError("shares is empty: give at least one, such as 0.01 for 1 % of the tokens")
    for share in shares:
        as_number("share", share, above=0, at_most=1, advice="0.01 is 1 % of the tokens.")
    basis_tokens = as_int("basis_tokens", basis_tokens, at_least=0, advice="0 is none.")
    if progress is not None and not function_of(progress, 2):
        raise TypeError(f"progress is {shown(progress)}, but must be a function of two numbers, or None")
    parts = forced(model, texts, sources, context=context)
    total = sum(len(part.tokens) - part.first for part in parts)
    matrix = model.output_matrix
    rules = criteria(None if matrix is None else matrix.shape[1])
    collectors = [
        (StrictestSettings(criterion, shares, total), critical) for criterion, critical in rules.items()
    ]
    tested_tokens = min(basis_tokens, total)
    basis = None
    if matrix is not None and tested_tokens:
        test_rank = min(AUTO_RANK, matrix.shape[1]) if isinstance(rank, str) and rank == "auto" else rank
        basis = BasisCriticals(BasisTest(matrix.detach(), test_rank), test_rank, shares, tested_tokens)
    done = 0
    for positions in _read_positions(model, parts, batch):
        for collector, critical in collectors:
            collector.extend(critical(positions).tolist())
        if basis is not None:
            basis.extend(_select_evenly(positions, done, total, tested_tokens))
        done += len(positions.token_N)
        if progress is not None:
            progress(done, total)
    matches = [collector.match(share) for collector, _ in collectors for share in shares]
    if basis is not None:
        by_share = [basis.matches(share) for share in shares]
        matches += [match for same_rule in zip(*by_share, strict=True) for match in same_rule]
    return matches


def rejected_shares(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    settings: Mapping[str, float],
    *,
    sources: Sequence[str | Sequence[int]] | None = None,
    context: int | None = None,
    batch: int = 8,
) -> dict[str, float]:
    """Return the share of the tokens of texts that each sampler rejects at a given setting.

    `settings` maps the names of `thresholds` to settings, such as {"eta": 0.02}; basis-aware samplers are not
    supported.
    """
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise TypeError(f'settings is {shown(settings)}, but must be a dict such as {{"eta": 0.02}}')
    for name, setting in settings.items():
        as_number(name, setting, advice="It is the sampler's setting.")
    parts = forced(model, texts, sources, context=context)
    matrix = model.output_matrix
    rules = {
        each.name: (each, f) for each, f in criteria(None if matrix is None else matrix.shape[1]).items()
    }
    if unknown := sorted(settings.keys() - rules.keys()):
        raise ValueError(f"{', '.join(unknown)} is unknown: choose from {', '.join(sorted(rules))}")
    rejected, total = dict.fromkeys(settings, 0), 0
    for positions in _read_positions(model, parts, batch):
        total += len(positions.token_N)
        for name, setting in settings.items():
            criterion, critical = rules[name]
            rejected[name] += int(criterion.rejects(setting, critical(positions)).sum())
    return {name: count / total for name, count in rejected.items()}


def _read_positions(model: StepModel, parts: Sequence[Window], batch: int) -> Iterator[Positions]:
    for seen in read(model, parts, batch=batch):
        for logp_NV, token_N in zip(
            torch.split(seen.logp_MV, CHUNK), torch.split(seen.token_M, CHUNK), strict=True
        ):
            yield Positions(logp_NV.cpu(), token_N.cpu())


def _select_evenly(positions: Positions, done: int, total: int, tested_tokens: int) -> Positions:
    number_N = torch.arange(done, done + len(positions.token_N))
    rows_M = ((number_N + 1) * tested_tokens // total > number_N * tested_tokens // total).nonzero()[:, 0]
    return Positions(positions.logp_NV[rows_M], positions.token_N[rows_M])
