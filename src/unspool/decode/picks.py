"""Picks: how one token is drawn from a row of scores."""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakKeyDictionary

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from unspool.basis.kappa_rule import KappaRule, KappaStep
from unspool.basis.work import DEFAULT_BUDGET
from unspool.decode.arguments import check_int, check_number, function_of, items, one_of, set_fields, shown
from unspool.decode.delegating import original
from unspool.decode.fast_sampling import best_tokens
from unspool.decode.multinomial import Multinomial, invert
from unspool.decode.transforms.nucleus import TopP
from unspool.decode.transforms.scores import Truncation
from unspool.interfaces import Step, StepModel, Transform

if TYPE_CHECKING:
    from unspool.basis import BasisStep, BasisTest

FEW = 8192
"""Scores up to which torch takes less time than to call anything else."""


@dataclass(frozen=True)
class ArgMax:
    """The mode of the distribution; draws nothing.

    Take the most probable token.

        y = argmax_i s_i

    Of equal scores the smallest token id wins, on every device.
    """

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N)."""
        best = best_tokens(scores_NV, 1) if scores_NV.numel() > FEW else None
        return scores_NV.argmax(dim=-1) if best is None else best[1][:, 0]


# The threshold τ of a basis-aware draw, for each row.
#
#     constant   τ                              BA-ε
#     eta        min(η, √η · e^(−H))            BA-η: it falls where the model is unsure
#     nucleus    p(the last token of top-p)     BA-nucleus: what top-p would have kept needs no test
#
# Finlayson et al. 2024, §5 (papers.bib: finlayson2024closing).


class TauRule(Protocol):
    """(N, V) log-probabilities → τ of every row."""

    def __call__(self, logp_NV: Tensor) -> list[float]:
        """τ of every row."""
        ...


@dataclass(frozen=True)
class ConstantTau:
    """The same τ everywhere."""

    tau: float

    def __post_init__(self) -> None:
        check_tau(self, "tau")

    def __call__(self, logp_NV: Tensor) -> list[float]:
        """τ, N times."""
        return [self.tau] * len(logp_NV)


@dataclass(frozen=True)
class EtaTau:
    """min(η, √η · e^(−H))."""

    eta: float

    def __post_init__(self) -> None:
        check_tau(self, "eta")

    def __call__(self, logp_NV: Tensor) -> list[float]:
        """A τ that falls with the entropy of the row."""
        p_NV = logp_NV.exp()
        entropy_N = -(p_NV * logp_NV.masked_fill(p_NV == 0, 0.0)).sum(dim=-1)
        return [min(self.eta, math.sqrt(self.eta) * math.exp(-h)) for h in entropy_N.tolist()]


@dataclass(frozen=True)
class NucleusTau:
    """The probability of the least probable token that top-p keeps."""

    p: float

    def __post_init__(self) -> None:
        check_tau(self, "p")

    def __call__(self, logp_NV: Tensor) -> list[float]:
        """The boundary of each row's nucleus."""
        kept_NV = TopP(self.p).keeps(logp_NV)
        boundary: list[float] = logp_NV.masked_fill(~kept_NV, 0.0).amin(dim=-1).exp().tolist()
        # One token may hold nearly everything: τ must stay below 1.
        return [min(tau, 1 - 1e-9) for tau in boundary]


def check_tau(rule: TauRule, field: str) -> None:
    """Refuse what is not strictly between 0 and 1."""
    check_number(rule, field, above=0, at_most=1, advice="Common values are 0.001 … 0.9.")
    if getattr(rule, field) == 1:
        name = f"{type(rule).__name__}.{field}"
        raise ValueError(f"{name} is 1, and must be below 1: a threshold of 1 accepts nothing.")


TAU_RULES: dict[str, type] = {"ConstantTau": ConstantTau, "EtaTau": EtaTau, "NucleusTau": NucleusTau}


# Basis-aware sampling: keep a token of low probability where the model's own geometry proves it possible.
#
#     draw i ~ p̂;  accept if p̂ᵢ ≥ τ, or if no p has Wᵀp = Wᵀp̂, 0 ≤ p ≤ e^δ p̂ and pᵢ = 0;  else draw again
#
# Finlayson et al. 2024, §5, "BAT" (papers.bib: finlayson2024closing). W is the matrix of the model's output
# layer, δ = −log(1 − τ). A threshold drops every improbable token; this drops only those that the softmax
# bottleneck could have made up. Rejected tokens are not drawn again, so that what is drawn is p̂ restricted
# to the accepted set, exactly. The tests and their proofs are in `unspool.basis`.
#
# What may stand before it: truncations (top-p, typical …), which only narrow what is drawn from; the test is
# about the model's own p̂ all the same. A rule that reshapes p̂ (a temperature, a penalty) is refused,
# because what is drawn would not be what is tested, unless on="processed" asks for it: then p̂, in the
# equation and for τ, is the distribution that all rules before it have made together, cut tokens at zero, and
# the proof is about that one. Theorem 2, from which the test follows, is about a model's own p̂: of a
# processed one it is assumed.
#
# Differs from the paper: the verdict is exact and carries a proof; what cannot be decided counts as rejected;
# when `retries` tokens have been rejected in a row, the most probable token is taken of those that the rules
# before it have left, and that is counted.
# Above the rank `exact_up_to` the κ rule of `unspool.basis` is asked in place of the test, which would take
# seconds for a step: a warning says so, and so do the counts. What is made of W for the tests is kept in the
# user's cache folder (UNSPOOL_CACHE names another one), so that the next process need not make it again.


KEPT = 4_000_000
"""Numbers of W from which on its test is kept on disk: a smaller one is made sooner than it is read."""

AUTO_RANK = 20
"""What the paper's experiments use."""

_TESTS: WeakKeyDictionary[Any, dict[int, tuple[bytes, BasisTest]]] = WeakKeyDictionary()
"""Model → rank → the test made last and the stamp of its W: a second text need not make it again."""


@cache
def _blas() -> ThreadpoolController:
    """numpy's threads: on products this small they gain nothing, and they stall beside torch's."""
    return ThreadpoolController()


def _stamp(W_VD: Tensor) -> bytes:
    """Short bytes that change with any of the numbers; to read W twice is less than a step of its model does.

    Nothing else tells that W has changed: torch counts neither what fused optimizers write, nor changes of
    what a head computes W from.
    """
    bits_VD = W_VD.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[W_VD.element_size()])
    # The first sees the last bit of any number, and neither order nor pairs of signs; the second those.
    sums_V = bits_VD.sum(1, dtype=bits_VD.dtype)
    products_V = (W_VD @ torch.arange(1.0, W_VD.shape[1] + 1).sin().to(W_VD)).float()
    digest = blake2b(f"{W_VD.dtype} {tuple(W_VD.shape)}".encode(), digest_size=20)
    for it_V in (sums_V, products_V):
        digest.update(it_V.cpu().numpy().data)
    return digest.digest()


@dataclass(frozen=True)
class BasisAware:
    """BasisAware(0.1, rank=20): as the last rule of a Sample."""

    tau: float | TauRule = 0.1
    """Tokens at least this probable need no test; or a rule that says so for each row."""
    rank: int | Literal["auto"] | None = "auto"
    """How many directions of W the test looks at (None: all): more accept more and cost more. "auto" is
    20, or the width of the model where that is less."""
    on: Literal["model", "processed"] = "model"
    """Whose probabilities are tested: the model's own, or those that the transforms before made of them."""
    retries: int = 100
    exact_up_to: int = 2048
    """The highest rank to test at: above it even the first steps of a test take seconds, and the κ rule
    decides, which proves nothing; a warning says so."""
    rule: KappaRule | None = None
    """The κ rule of this model (`BasisTest.calibrate_kappa` fits one); None takes a formula that was fitted
    on another one, `KappaRule.typical`."""
    budget: float | None = DEFAULT_BUDGET
    """The work that one test may cost, in multiplications (`unspool.basis.work`): about a second of one core.
    After that the token counts as rejected, and is counted as undecided. None: no limit."""

    def __post_init__(self) -> None:
        if not function_of(self.tau, 1):
            check_number(
                self, "tau", above=0, at_most=1, advice="A rule such as NucleusTau(0.9) may stand here, too."
            )
            set_fields(self, tau=ConstantTau(self.tau))  # type: ignore[arg-type]
        if self.rank is not None and not (isinstance(self.rank, str) and self.rank == "auto"):
            advice = f'None looks at every direction, "auto" at {AUTO_RANK} or as many as there are.'
            check_int(self, "rank", at_least=0, advice=advice)
        check_int(self, "retries", at_least=1, advice="100 is plenty.")
        check_int(self, "exact_up_to", at_least=0, advice="2048 is affordable on a CPU.")
        one_of("BasisAware.on", self.on, ("model", "processed"))
        if self.rule is not None and not isinstance(self.rule, KappaRule):
            raise TypeError(
                f"BasisAware.rule is {shown(self.rule)}, but must be a KappaRule, such as "
                "BasisTest.calibrate_kappa gives, or None."
            )
        if self.budget is not None:
            check_number(
                self, "budget", above=0, advice=f"{DEFAULT_BUDGET:g} is about a second; None is no limit."
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
        """It must see the model first: `bind`."""
        raise TypeError(
            "BasisAware needs the output matrix of a model: use it in Sample(…), or call bind(model, ())"
        )

    def bind(self, model: StepModel, transforms: Sequence[Transform]) -> Bound:
        """The pick for one model, its output matrix prepared."""
        matrix = model.output_matrix
        if matrix is None:
            raise ValueError(
                f"BasisAware needs the matrix of an output layer, and {type(model).__name__} has none: "
                "mixtures, kernels and models made of models have no basis. Use Eta or Kappa instead."
            )
        reshaping = [rule for rule in transforms if not isinstance(rule, Truncation)]
        if reshaping and self.on == "model":
            raise ValueError(
                f"{reshaping[0]!r} stands before BasisAware, which tests the model's own probabilities: what "
                'is drawn would not be what is tested. Leave it out, or say on="processed" to test what it '
                "makes."
            )
        W_VD = matrix.detach()
        width = W_VD.shape[1]
        rank = min(AUTO_RANK, width) if self.rank == "auto" else width if self.rank is None else self.rank
        if rank > width:
            raise ValueError(
                f"BasisAware.rank is {rank}, but the output matrix of {type(model).__name__} is {width} "
                f'wide. Choose 0 … {width}, None for all of them, or "auto".'
            )
        if self.exact_up_to < rank:
            return Bound(self, self._kappa_rule(rank, W_VD.shape[0]))
        from unspool.basis import BasisTest
        from unspool.basis.solver.whitening import default_cache_folder

        tests, now = _TESTS.setdefault(original(model), {}), _stamp(W_VD)
        made_of, test = tests.get(rank, (None, None))
        if test is None or made_of != now:
            cache = default_cache_folder() if W_VD.numel() >= KEPT else None
            test = BasisTest(W_VD, rank, cache=cache, budget=self.budget)
            tests[rank] = now, test
        return Bound(self, test.with_budget(self.budget))

    def _kappa_rule(self, rank: int, vocabulary: int) -> KappaRule:
        """The rule that stands in for the test, with a warning."""
        rule = self.rule or KappaRule.typical(rank + 1)
        if rule.lengths is not None:
            rule.lengths.for_vocabulary(vocabulary)  # refuses another model's, in its own words
        fitted = "the one given" if self.rule else "extrapolated from another model, SmolLM2"
        lengths = "without row lengths" if rule.lengths is None else "with row lengths"
        warnings.warn(
            f"An exact basis-aware test at rank {rank} takes seconds for a step, so the κ rule decides "
            f"instead ({fitted}, {lengths}); it proves nothing. Choose a rank of {self.exact_up_to} or less "
            f"for proofs, or say BasisAware(…, exact_up_to={rank}) to wait for them.",
            UserWarning,
            stacklevel=3,
        )
        return rule


@dataclass(frozen=True)
class Bound:
    """A BasisAware pick that knows its model's output matrix, and counts what it does."""

    pick: BasisAware
    test: BasisTest | KappaRule
    counts: dict[int, dict[str, float]] = field(default_factory=dict)

    def draw(self, scores_NV: Tensor, step: Step, rngs: Sequence[Random]) -> Tensor:
        """(N, V) → (N)."""
        tested_NV = scores_NV if self.pick.on == "processed" else step.logp_NV
        taus = items("what BasisAware.tau gave", self.pick.tau(tested_NV), "a list of a τ for each row")  # type: ignore[operator]
        rows = zip(scores_NV, tested_NV, taus, rngs, strict=True)
        return torch.tensor([self._row(*row) for row in rows], device=scores_NV.device)

    def pop_stats(self, rng: Random) -> Mapping[str, Any]:
        """What was done for the row that draws from this rng; told once, because ids are used again."""
        return self.counts.pop(id(rng), {})

    def _row(self, scores_V: Tensor, logp_V: Tensor, tau: float, rng: Random) -> int:
        count = self.counts.setdefault(id(rng), defaultdict(float))
        log_tau = math.log(tau)
        step: BasisStep | KappaStep | None = None
        weight_V = scores_V.exp()
        for _ in range(self.pick.retries):
            u = torch.tensor([rng.random()], dtype=torch.float64, device=weight_V.device)
            token = int(invert(weight_V[None], u))
            count["drawn"] += 1
            if logp_V[token] >= log_tau:
                return token
            began = time.perf_counter()
            with _blas().limit(limits=1):
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
