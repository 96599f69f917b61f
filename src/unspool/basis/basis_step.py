"""All tests on one distribution: what they share is made once, and no token is tested twice.

    accept i  ⇔  no p with W̃ᵀp = W̃ᵀp̂, 0 ≤ p ≤ e^δ·p̂, pᵢ = 0

Finlayson et al. 2024, §4 (basis-aware threshold).
papers.bib: finlayson2024closing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isnan

import numpy as np
from numpy.typing import NDArray

from unspool.basis.arrays import Array, Indices, checked_token, real, shown, whole
from unspool.basis.certificate import Acceptance, Verdict
from unspool.basis.solver.cascade import Cascade
from unspool.basis.solver.distribution import Distribution
from unspool.basis.solver.shared_factors import SharedFactors
from unspool.basis.solver.whitening import Whitened
from unspool.basis.theory import the_tau

# So many tokens are searched side by side: more would not fit the processor's cache.
SIDE_BY_SIDE = 128


class BasisStep:
    """Tests the tokens of one next-token distribution. Made by `BasisTest.step`."""

    def __init__(self, white: Whitened, p_V: Array, budget: float = inf) -> None:
        self._factors = SharedFactors(white, p_V)
        self._budget = budget
        self._verdicts: dict[tuple[int, float], Verdict] = {}

    @property
    def distribution(self) -> Distribution:
        """p̂, normalised, with its head sorted."""
        return self._factors.dist

    @property
    def kappa(self) -> float:
        """The κ of p̂ at this rank."""
        return self._factors.dist.kappa

    def accepts(self, i: int, *, tau: float | None = None, delta: float | None = None) -> Verdict:
        """Whether token i is proven to have true probability; give the threshold τ or the error bound δ."""
        return self.verdicts([i], tau=tau, delta=delta)[0]

    def verdicts(
        self, tokens: Iterable[int], *, tau: float | None = None, delta: float | None = None
    ) -> Sequence[Verdict]:
        """The verdicts on several tokens, which are searched side by side."""
        tau = the_tau(tau, delta)
        tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        if isinstance(tokens, str | bytes | type) or not isinstance(tokens, Iterable):
            raise TypeError(f"tokens is {shown(tokens)}; expected the numbers of tokens, such as [3, 17].")
        wanted = [self._checked(i) for i in tokens]
        new = [i for i in dict.fromkeys(wanted) if (i, tau) not in self._verdicts]
        for start in range(0, len(new), SIDE_BY_SIDE):
            part = np.array(new[start : start + SIDE_BY_SIDE], dtype=np.intp)
            for verdict in Cascade(self._factors, part, tau, self._budget).verdicts():
                self._verdicts[verdict.token, tau] = verdict
        return [self._verdicts[i, tau] for i in wanted]

    def mask(self, tau: float, *, top: int | None = None, floor: float | None = None) -> NDArray[np.bool_]:
        """Which tokens are accepted: of all, of the `top` most probable, of those with `floor` or more."""
        tokens = self._among(top, floor)
        out_V = np.zeros(self.distribution.vocabulary, dtype=bool)
        out_V[tokens] = [verdict.accepted for verdict in self.verdicts(map(int, tokens), tau=tau)]
        return out_V

    def accepted_up_to(self, proof: Acceptance) -> float:
        """The c below which a λ proves acceptance: (p̂ᵢ − Σp̂s⁻)/Σp̂s⁺ over the other tokens."""
        s_V = self._factors.white.project(proof.slopes_M[:, None])[:, 0]
        p_V = self.distribution.p.copy()
        goal, p_V[proof.token] = p_V[proof.token], 0
        s_V /= s_V[proof.token]
        above = float(p_V @ np.maximum(s_V, 0))
        return float(goal - p_V @ np.maximum(-s_V, 0)) / above if above > 0 else np.inf

    def _among(self, top: int | None, floor: float | None) -> Indices:
        dist = self.distribution
        count, least = whole(top), real(floor)
        if top is not None and (count is None or count < 1):
            raise (TypeError if count is None else ValueError)(
                f"top is {shown(top)}; at least one token must be asked about (None asks about all)."
            )
        if floor is not None and (least is None or isnan(least)):
            raise (TypeError if least is None else ValueError)(
                f"floor is {shown(floor)}; expected the least probability to ask about, or None for any."
            )
        dist.extend(dist.support if count is None else min(count, dist.vocabulary))
        tokens = dist.order_N[:count]
        return tokens if least is None else tokens[dist.p[tokens] >= least]

    def _checked(self, i: int) -> int:
        i = checked_token(i, self.distribution.vocabulary)
        if not self.distribution.p[i] > 0:
            raise ValueError(
                f"Token {i} has probability zero: there is nothing to test, it cannot be sampled."
            )
        return i
