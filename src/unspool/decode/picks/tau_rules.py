"""The threshold τ of a basis-aware draw, for each row.

    constant   τ                              BA-ε
    eta        min(η, √η · e^(−H))            BA-η: it falls where the model is unsure
    nucleus    p(the last token of top-p)     BA-nucleus: what top-p would have kept needs no test

Finlayson et al. 2024, §5 (papers.bib: finlayson2024closing).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.top_p import TopP


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
    number(rule, field, above=0, at_most=1, advice="Common values are 0.001 … 0.9.")
    if getattr(rule, field) == 1:
        name = f"{type(rule).__name__}.{field}"
        raise ValueError(f"{name} is 1, and must be below 1: a threshold of 1 accepts nothing.")


TAU_RULES: dict[str, type] = {"ConstantTau": ConstantTau, "EtaTau": EtaTau, "NucleusTau": NucleusTau}
