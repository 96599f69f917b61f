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

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf, nan
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


def entropy(logp_NV: Tensor) -> Tensor:
    """Return H of each row in nats, in float64."""
    entropy_N: Tensor = torch.special.entr(logp_NV.double().exp()).sum(dim=-1)
    return entropy_N


def eta_of(threshold_N: Tensor, entropy_N: Tensor) -> Tensor:
    """Return the η for which min(η, √η·e^(−H)) is `threshold_N`; it can be above 1."""
    return torch.maximum(threshold_N, (threshold_N * entropy_N.exp()).square())


def critical_settings(logp_NV: Tensor, token_N: Tensor, width: int | None = None) -> dict[str, Tensor]:
    """Return for each criterion the strictest settings that keep the tokens; κ needs the model's width."""
    logp_N1, best_N1 = logp_NV.gather(1, token_N[:, None]), logp_NV.amax(dim=-1, keepdim=True)
    p_NV, p_N, best_N = (each.double().exp() for each in (logp_NV, logp_N1[:, 0], best_N1[:, 0]))
    is_best_N = (logp_N1 >= best_N1)[:, 0]

    def mass(which_NV: Tensor) -> Tensor:
        return (p_NV * which_NV).sum(dim=-1) / p_NV.sum(dim=-1)

    above_NV = logp_NV > logp_N1
    # Among equals the lower id ranks first.
    ties_NV = (logp_NV == logp_N1) & (torch.arange(logp_NV.shape[1]) < token_N[:, None])
    # In the precision of the transform, so that equal distances stay equal.
    entropy_N1 = -(logp_NV * logp_NV.exp()).nansum(dim=-1, keepdim=True)
    distance_NV = (-logp_NV - entropy_N1).abs()
    below_NV = (best_N1 - logp_NV).double()
    finite_NV = below_NV.masked_fill(below_NV == inf, nan)
    variance_N = finite_NV.square().nanmean(dim=-1) - finite_NV.nanmean(dim=-1).square()
    sigmas_N = below_NV.gather(1, token_N[:, None])[:, 0] / variance_N.clamp(min=0).sqrt()
    settings = {
        "top-k": above_NV.sum(dim=-1).double() + 1,
        "top-p": mass(above_NV | ties_NV),
        "typical": mass(distance_NV < distance_NV.gather(1, token_N[:, None])),
        "top-nσ": sigmas_N.masked_fill(is_best_N, 0.0),
        "epsilon": p_N.masked_fill(is_best_N, 1.0),
        "min-p": p_N / best_N,
        "top-a": (p_N / best_N.square()).clamp(max=1.0),
        "eta": eta_of(p_N, entropy(logp_NV)).clamp(max=1.0).masked_fill(is_best_N, 1.0),
    }
    if width is not None:
        scaled_N = (log_kappa(logp_NV, width + 1) + logp_N1)[:, 0].double().exp()
        settings["kappa"] = scaled_N.masked_fill(is_best_N, inf)
    return settings


CRITERIA = (
    Criterion("top-k", "Sample(TopK({}))", loosest=inf, is_integer=True),
    Criterion("top-p", "Sample(TopP({}))", loosest=1.0),
    Criterion("typical", "Sample(Typical({}))", loosest=1.0),
    Criterion("top-nσ", "Sample(TopNSigma({}))", loosest=inf),
    Criterion("epsilon", "Sample(Epsilon({}))", loosest=0.0),
    Criterion("min-p", "Sample(MinP({}))", loosest=0.0),
    Criterion("top-a", "Sample(TopA({}))", loosest=0.0),
    Criterion("eta", "Sample(Eta({}))", loosest=0.0),
)


def criteria(width: int | None) -> dict[str, Criterion]:
    """Return all criteria by name; the κ rule only if the width of the model is known."""
    kappa = [] if width is None else [Criterion("kappa", f"Sample(Kappa({{}}, {width}))", loosest=0.0)]
    return {criterion.name: criterion for criterion in (*CRITERIA, *kappa)}


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
        self._first: list[float] = []  # sorted, with a minus if larger settings are looser

    def needs(self, critical: float) -> bool:
        """Whether a token with this critical setting, or a stricter one, can be among the first."""
        return len(self._first) < self._count or self._sign * critical < self._first[-1]

    def extend(self, criticals: Iterable[float]) -> None:
        """Add critical settings."""
        for critical in criticals:
            insort(self._first, self._sign * critical)
            del self._first[self._count :]

    def match(self, share: float) -> Match:
        """Return the setting that rejects this share."""
        survivor = self._first[_count_rejected(share, self.tokens)]
        rejected = bisect_left(self._first, survivor)
        before = self._first[rejected - 1] if rejected else self._sign * self.criterion.loosest
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

    def extend(self, logp_NV: Tensor, token_N: Tensor) -> None:
        """Add tokens, given the distributions that they follow."""
        with one_blas_thread():
            for logp_V, token in zip(logp_NV.double(), token_N.tolist(), strict=True):
                self._push(logp_V, token, entropy(logp_V))

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
    width = None if matrix is None else matrix.shape[1]
    collectors = [StrictestSettings(criterion, shares, total) for criterion in criteria(width).values()]
    tested_tokens = min(basis_tokens, total)
    basis = None
    if matrix is not None and tested_tokens:
        test_rank = min(AUTO_RANK, matrix.shape[1]) if isinstance(rank, str) and rank == "auto" else rank
        basis = BasisCriticals(BasisTest(matrix.detach(), test_rank), test_rank, shares, tested_tokens)
    done = 0
    for logp_NV, token_N in _read_positions(model, parts):
        found = critical_settings(logp_NV, token_N, width)
        for collector in collectors:
            collector.extend(found[collector.criterion.name].tolist())
        if basis is not None:
            number_N = torch.arange(done, done + len(token_N))
            is_tested_N = (number_N + 1) * tested_tokens // total > number_N * tested_tokens // total
            basis.extend(logp_NV[is_tested_N], token_N[is_tested_N])
        done += len(token_N)
        if progress is not None:
            progress(done, total)
    matches = [collector.match(share) for collector in collectors for share in shares]
    if basis is not None:
        by_share = [basis.matches(share) for share in shares]
        matches += [match for same_rule in zip(*by_share, strict=True) for match in same_rule]
    return matches


def rejected_shares(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    settings: Mapping[str, float],
) -> dict[str, float]:
    """Return the share of the tokens of texts that each sampler rejects at a given setting.

    `settings` maps the names of `thresholds` to settings, such as {"eta": 0.02}; basis-aware samplers are not
    supported.
    """
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise TypeError(f'settings is {shown(settings)}, but must be a dict such as {{"eta": 0.02}}')
    for name, setting in settings.items():
        as_number(name, setting, advice="It is the sampler's setting.")
    parts, matrix = forced(model, texts), model.output_matrix
    width = None if matrix is None else matrix.shape[1]
    rules = criteria(width)
    if unknown := sorted(settings.keys() - rules.keys()):
        raise ValueError(f"{', '.join(unknown)} is unknown: choose from {', '.join(sorted(rules))}")
    rejected, total = dict.fromkeys(settings, 0), 0
    for logp_NV, token_N in _read_positions(model, parts):
        total, found = total + len(token_N), critical_settings(logp_NV, token_N, width)
        for name, setting in settings.items():
            rejected[name] += int(rules[name].rejects(setting, found[name]).sum())
    return {name: count / total for name, count in rejected.items()}


def _read_positions(model: StepModel, parts: Sequence[Window]) -> Iterator[tuple[Tensor, Tensor]]:
    for seen in read(model, parts):
        logp_MV, token_M = seen.logp_MV.cpu(), seen.token_M.cpu()
        yield from zip(torch.split(logp_MV, CHUNK), torch.split(token_M, CHUNK), strict=True)
