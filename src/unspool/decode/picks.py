"""Picks: draw one token from a row of scores (argmax, multinomial, basis-aware sampling)."""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from unspool.arguments import (
    Checked,
    as_int,
    as_number,
    function_of,
    integer,
    items,
    number,
    one_of,
    set_fields,
    shown,
)
from unspool.basis.kappa_rule import KappaRule, KappaStep
from unspool.basis.work import DEFAULT_BUDGET, one_blas_thread
from unspool.decode.fast_sampling import best_tokens
from unspool.decode.lockstep import original
from unspool.decode.multinomial import Multinomial, token_at
from unspool.decode.transforms.nucleus import TopP
from unspool.decode.transforms.scores import Truncation
from unspool.interfaces import Step, StepModel, Transform

if TYPE_CHECKING:
    from unspool.basis import BasisStep, BasisTest

TORCH_ARGMAX_SCORES = 8192
"""Up to this many scores, torch's argmax is faster than a compiled kernel."""


@dataclass(frozen=True)
class ArgMax:
    """Take the most probable token.

        y = argmax_i s_i

    Of equal scores the smallest token id wins, on every device.
    """

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:  # noqa: ARG002
        best = best_tokens(scores_NV, 1) if scores_NV.numel() > TORCH_ARGMAX_SCORES else None
        return scores_NV.argmax(dim=-1) if best is None else best[1][:, 0]


class TauRule(Protocol):
    """The threshold τ of basis-aware sampling for each row, from (N, V) log-probabilities.

        constant   τ                              BA-ε
        eta        min(η, √η · e^(−H))            BA-η: falls with the entropy
        nucleus    p(the last token of top-p)     BA-nucleus: tokens in the nucleus are not tested

    Finlayson et al. 2024, §5 (papers.bib: finlayson2024closing).
    """

    def __call__(self, logp_NV: Tensor) -> list[float]: ...


TAU: dict[str, Any] = {"above": 0, "below": 1, "advice": "Common values are 0.001 … 0.9; 1 accepts no token."}
MAX_TAU = 1 - 1e-9
"""The largest threshold of the rules: it must be below 1, even if one token has nearly all the mass."""


@dataclass(frozen=True)
class ConstantTau(Checked):
    """BA-ε: the same τ for all rows."""

    tau: float = number(**TAU)

    def __call__(self, logp_NV: Tensor) -> list[float]:
        return [self.tau] * len(logp_NV)


@dataclass(frozen=True)
class EtaTau(Checked):
    """BA-η: min(η, √η · e^(−H)), below 1. An η above 1 is stricter where the entropy is high."""

    eta: float = number(above=0, advice="Common values are 0.001 … 0.9.")

    def __call__(self, logp_NV: Tensor) -> list[float]:
        p_NV = logp_NV.exp()
        entropy_N = -(p_NV * logp_NV.masked_fill(p_NV == 0, 0.0)).sum(dim=-1)
        return [min(self.eta, math.sqrt(self.eta) * math.exp(-h), MAX_TAU) for h in entropy_N.tolist()]


@dataclass(frozen=True)
class NucleusTau(Checked):
    """BA-nucleus: the probability of the least probable token that top-p keeps."""

    p: float = number(**TAU)

    def __call__(self, logp_NV: Tensor) -> list[float]:
        kept_NV = TopP(self.p).keeps(logp_NV)
        boundary: list[float] = logp_NV.masked_fill(~kept_NV, 0.0).amin(dim=-1).exp().tolist()
        return [min(tau, MAX_TAU) for tau in boundary]


TAU_RULES: dict[str, type] = {"ConstantTau": ConstantTau, "EtaTau": EtaTau, "NucleusTau": NucleusTau}


MIN_CACHED_SIZE = 4_000_000
"""Smallest number of entries of W whose test is cached on disk; a smaller one is faster to compute."""

AUTO_RANK = 20
"""Rank of the paper's experiments."""

_TESTS: WeakKeyDictionary[Any, dict[int, tuple[bytes, BasisTest]]] = WeakKeyDictionary()
"""Model → rank → the latest test and the fingerprint of its W."""


def _fingerprint(W_VD: Tensor) -> bytes:
    """A hash that changes with any number of W; it costs less than a model step.

    torch's version counter would miss writes of fused optimizers, and heads that compute W.
    """
    bits_VD = W_VD.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[W_VD.element_size()])
    # The sums detect a change of any bit, the products a change of order or signs.
    sums_V = bits_VD.sum(1, dtype=bits_VD.dtype)
    products_V = (W_VD @ torch.arange(1.0, W_VD.shape[1] + 1).sin().to(W_VD)).float()
    digest = blake2b(f"{W_VD.dtype} {tuple(W_VD.shape)}".encode(), digest_size=20)
    for values_V in (sums_V, products_V):
        digest.update(values_V.cpu().numpy().data)
    return digest.digest()


@dataclass(frozen=True)
class BasisAware(Checked):
    """BasisAware(0.1, rank=20), as the last argument of Sample: basis-aware sampling.

    It keeps an improbable token if the softmax bottleneck proves that its true probability is positive.

        draw i ~ p̂;  accept if p̂ᵢ ≥ τ, or if no p has Wᵀp = Wᵀp̂, 0 ≤ p ≤ e^δ p̂ and pᵢ = 0;  else draw again

    Finlayson et al. 2024, §5, "BAT" (papers.bib: finlayson2024closing). W is the output matrix of the model,
    δ = −log(1 − τ). Rejected tokens are not drawn again, so that a draw is exactly from p̂ restricted to the
    accepted set. The tests and proofs are in `unspool.basis`.

    Truncations (top-p, typical …) may come before it; the test is about the model's p̂. Transforms that
    reshape p̂ (temperature, penalties) are refused unless on="processed": then p̂ and τ are about the
    processed distribution, for which Theorem 2 of the paper is an assumption.

    Differs from the paper: the verdict is exact and has a proof; an undecided token counts as rejected; after
    `retries` rejections the most probable remaining token is taken and counted as a fallback. Above the rank
    `exact_up_to` the κ rule of `unspool.basis` replaces the test, with a warning. The preparation of W is
    cached in the user's cache folder (UNSPOOL_CACHE).
    """

    tau: float | TauRule = 0.1
    """Tokens at least this probable are not tested; or a rule that gives τ for each row."""
    rank: int | Literal["auto"] | None = "auto"
    """Directions of W in the test (None: all): more accept more and cost more. "auto" is 20, or the width."""
    on: Literal["model", "processed"] = "model"
    """The tested probabilities: the model's, or those after earlier transforms."""
    retries: int = integer(100, at_least=1, advice="100 is plenty.")
    exact_up_to: int = integer(2048, at_least=0, advice="2048 is affordable on a CPU.")
    """Maximum rank of exact tests; above it a test takes seconds, and the κ rule decides, without a proof."""
    rule: KappaRule | None = None
    """The κ rule of this model (`BasisTest.calibrate_kappa`); None: `KappaRule.typical`, of another model."""
    budget: float | None = number(
        DEFAULT_BUDGET, above=0, optional=True, advice=f"{DEFAULT_BUDGET:g} is a second; None is no limit."
    )
    """Maximum work of one test, in multiplications (`unspool.basis.work`): about a second of one core. Beyond
    it the token is undecided and counts as rejected. None: no limit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not function_of(self.tau, 1):
            advice = "A rule such as NucleusTau(0.9) is allowed, too."
            set_fields(self, tau=ConstantTau(as_number("BasisAware.tau", self.tau, advice=advice)))
        if self.rank is not None and not (isinstance(self.rank, str) and self.rank == "auto"):
            advice = f'None uses every direction, "auto" {AUTO_RANK} or as many as there are.'
            set_fields(self, rank=as_int("BasisAware.rank", self.rank, at_least=0, advice=advice))
        one_of("BasisAware.on", self.on, ("model", "processed"))
        if self.rule is not None and not isinstance(self.rule, KappaRule):
            raise TypeError(
                f"BasisAware.rule is {shown(self.rule)}, but must be a KappaRule, such as "
                "BasisTest.calibrate_kappa gives, or None."
            )

    @classmethod
    def eta(
        cls, eta: float = 2e-3, rank: int | Literal["auto"] | None = "auto", retries: int = 100
    ) -> BasisAware:
        """BA-η: τ = min(η, √η · e^(−H))."""
        return cls(EtaTau(eta), rank, retries=retries)

    @classmethod
    def nucleus(
        cls, p: float = 0.9, rank: int | Literal["auto"] | None = "auto", retries: int = 100
    ) -> BasisAware:
        """BA-nucleus: τ is the probability at the boundary of top-p."""
        return cls(NucleusTau(p), rank, retries=retries)

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:  # noqa: ARG002
        raise TypeError(
            "BasisAware needs the output matrix of a model: use it in Sample(…), or call bind(model, ())"
        )

    def bind(self, model: StepModel, transforms: Sequence[Transform]) -> BoundBasisAware:
        """Bind the pick to the output matrix of a model."""
        matrix = model.output_matrix
        if matrix is None:
            raise ValueError(
                f"BasisAware needs the matrix of an output layer, and {type(model).__name__} has none "
                "(mixtures, kernels and combined models do not): use Eta or Kappa"
            )
        reshaping = [rule for rule in transforms if not isinstance(rule, Truncation)]
        if reshaping and self.on == "model":
            raise ValueError(
                f"{reshaping[0]!r} before BasisAware changes the probabilities that it tests: "
                'leave it out, or pass on="processed"'
            )
        W_VD = matrix.detach()
        width = W_VD.shape[1]
        rank = min(AUTO_RANK, width) if self.rank == "auto" else width if self.rank is None else self.rank
        if rank > width:
            raise ValueError(
                f"BasisAware.rank is {rank}, but the width of {type(model).__name__} is {width}: "
                f'choose 0 … {width}, None for all, or "auto"'
            )
        if self.exact_up_to < rank:
            return BoundBasisAware(self, self._kappa_rule(rank, W_VD.shape[0]))
        from unspool.basis import BasisTest
        from unspool.basis.solver.whitening import default_cache_folder

        tests, fingerprint = _TESTS.setdefault(original(model), {}), _fingerprint(W_VD)
        cached_fingerprint, test = tests.get(rank, (None, None))
        if test is None or cached_fingerprint != fingerprint:
            cache = default_cache_folder() if W_VD.numel() >= MIN_CACHED_SIZE else None
            test = BasisTest(W_VD, rank, cache=cache, budget=self.budget)
            tests[rank] = fingerprint, test
        return BoundBasisAware(self, test.with_budget(self.budget))

    def _kappa_rule(self, rank: int, vocabulary: int) -> KappaRule:
        """The κ rule that replaces the test, with a warning."""
        rule = self.rule or KappaRule.typical(rank + 1)
        if rule.lengths is not None:
            rule.lengths.for_vocabulary(vocabulary)  # refuses the lengths of another model
        fitted = "the one given" if self.rule else "extrapolated from another model, SmolLM2"
        lengths = "without row lengths" if rule.lengths is None else "with row lengths"
        warnings.warn(
            f"An exact basis-aware test at rank {rank} takes seconds per step, so the κ rule decides "
            f"({fitted}, {lengths}), without proofs. For proofs, choose rank ≤ {self.exact_up_to} "
            f"or BasisAware(…, exact_up_to={rank}).",
            UserWarning,
            stacklevel=3,
        )
        return rule


@dataclass(frozen=True)
class BoundBasisAware:
    """A BasisAware pick bound to a model; it counts its draws and tests."""

    pick: BasisAware
    test: BasisTest | KappaRule
    counts: dict[int, dict[str, float]] = field(default_factory=dict)

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:
        rows = zip(scores_NV, *self.tested(scores_NV, step), rngs, strict=True)
        return torch.tensor([self._row(*row) for row in rows], device=scores_NV.device)

    def tested(self, scores_NV: Tensor, step: Step) -> tuple[Tensor, tuple[float, ...]]:
        """The log-probabilities that are tested, and τ for each row."""
        tested_NV = scores_NV if self.pick.on == "processed" else step.logp_NV
        taus = self.pick.tau(tested_NV)  # type: ignore[operator]
        return tested_NV, items("the result of BasisAware.tau", taus, "a list of a τ for each row")

    def pop_stats(self, rng: Random) -> Mapping[str, Any]:
        """Remove and return the counts of the row with this rng."""
        return self.counts.pop(id(rng), {})

    def _row(self, scores_V: Tensor, logp_V: Tensor, tau: float, rng: Random) -> int:
        count = self.counts.setdefault(id(rng), defaultdict(float))
        log_tau = math.log(tau)
        step: BasisStep | KappaStep | None = None
        weight_V = scores_V.exp()
        for _ in range(self.pick.retries):
            token = token_at(weight_V, rng.random())
            count["drawn"] += 1
            if logp_V[token] >= log_tau:
                return token
            began = time.perf_counter()
            with one_blas_thread():
                step = step or self.test.step(logp_V.double().exp())
                verdict = step.accepts(token, tau=tau)
            count["tests"] += 1
            count["milliseconds"] += 1e3 * (time.perf_counter() - began)
            count[f"{'accepted' if verdict else 'rejected'}: {verdict.method}"] += 1
            if verdict:
                return token
            weight_V[token] = 0.0
            if not bool(weight_V.any()):
                break
        count["fallbacks"] += 1
        return int(scores_V.argmax())


PICKS: dict[str, type] = {"ArgMax": ArgMax, "BasisAware": BasisAware, "Multinomial": Multinomial}
