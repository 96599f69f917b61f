"""The strictest setting of basis-aware sampling that a token survives, by exact tests on its critical τ.

    BA-ε   τ*                                      survives ⇔ τ ≤ τ*
    BA-η   η* = max(τ*, (τ*·e^H)²)                 survives ⇔ η ≤ η*
    BA-p   p* = mass of the tokens with p > τ*     survives ⇔ p > p*

τ* is where the test's verdict on the token flips: it is at least the token's own probability, which needs no
test. So a token whose probability alone puts it beyond the share of interest is not tested at all, and the
verdicts on the others are exact.

Finlayson et al. 2024, §5–6. papers.bib: finlayson2024closing
Differs from the paper's code: η is inverted as it is defined (it is the larger of two thresholds' roots).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from unspool.basis import BasisTest
from unspool.diagnose.critical_settings import Criterion, Places, eta_of
from unspool.diagnose.matching import First, Match

# The bracket around τ* is this narrow: a setting is matched to a hundredth of itself.
RTOL = 1e-2


@cache
def _blas() -> ThreadpoolController:
    """numpy's threads: on products this small they only stall beside torch's."""
    return ThreadpoolController()


class BasisCriticals:
    """Collects the critical settings of basis-aware sampling over a text."""

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
