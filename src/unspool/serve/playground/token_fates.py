"""What becomes of single tokens under a decoder: kept, proved below the threshold, cut, or undecided.

Sample(f…)              kept  ⇔  f(log p)(x) > −∞
Sample(f…, ArgMax())    kept  ⇔  x is the best of these; Greedy(f…) is the same
Sample(BasisAware(τ))   kept  ⇔  p(x) ≥ τ, or proved (`unspool.basis`)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from unspool.decode.picks import ArgMax, Multinomial
from unspool.decode.picks.basis_aware import Bound
from unspool.decode.search import Greedy, Sample
from unspool.protocols import Search, Step

TEST_SECONDS = 2.0
"""For all tests of one distribution; whatever is not tested by then is undecided."""

Fate = Literal["kept", "proved", "cut", "undecided"]


@dataclass(frozen=True)
class Fates:
    """What a decoder does with the tokens that are shown."""

    decoder: str
    """As it is written."""
    fates: tuple[Fate, ...] = ()
    """For each of these tokens."""
    probabilities: tuple[float | None, ...] = ()
    """With which each would be drawn; None where that would need a test of every token."""
    kept: int | None = None
    """How many tokens of the whole vocabulary are kept, where that is known."""
    mass: float | None = None
    """What the model gives to all that are kept, or to those of them that are shown (`kept` is None)."""
    threshold: float | None = None
    """τ: whatever is less probable must be proved."""
    error: str | None = None
    """Why there is nothing else here."""


def rules_of(search: Search) -> tuple[Sequence[Any], Any]:
    """The transforms and the pick of a search that chooses one token after the other."""
    if isinstance(search, Sample):
        return search.transforms, search.pick
    if isinstance(search, Greedy):
        return search.transforms, ArgMax()
    raise ValueError(
        f"{search!r:.80} chooses whole texts, not single tokens: give a Greedy or a Sample, "
        "or look at it as a beam tree or side by side"
    )


def fates_of(pick: Any, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    """What `pick` does with these tokens, given what the transforms before it have made of log p."""
    return OF_PICKS[type(pick)](pick, scores_1V, step, tokens)


def _drawn(pick: Any, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    del pick
    q_V, alive_V = scores_1V[0].exp(), scores_1V[0] > -math.inf
    return Fates(
        "",
        tuple("kept" if alive_V[token] else "cut" for token in tokens),
        tuple(float(q_V[token]) for token in tokens),
        int(alive_V.sum()),
        float(step.logp_NV[0].exp()[alive_V].sum()),
    )


def _best(pick: Any, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    best = int(pick.draw(scores_1V, step, ())[0])
    return Fates(
        "",
        tuple("kept" if token == best else "cut" for token in tokens),
        tuple(float(token == best) for token in tokens),
        1,
        float(step.logp_NV[0, best].exp()),
    )


def _tested(pick: Bound, scores_1V: Tensor, step: Step, tokens: Sequence[int]) -> Fates:
    logp_1V = scores_1V if pick.pick.on == "processed" else step.logp_NV
    p_V = logp_1V[0].double().exp()
    tau = float(next(iter(pick.pick.tau(logp_1V))))  # type: ignore[operator]
    test, until = pick.test.step(p_V), time.monotonic() + TEST_SECONDS

    def fate(token: int) -> Fate:
        if scores_1V[0, token] == -math.inf:  # a rule before the pick has cut it
            return "cut"
        if p_V[token] >= tau:
            return "kept"
        if time.monotonic() > until:
            return "undecided"
        verdict = test.accepts(token, tau=tau)
        return "proved" if verdict else "undecided" if verdict.how == "undecided" else "cut"

    fates = tuple(map(fate, tokens))
    kept = [token for token, found in zip(tokens, fates, strict=True) if found in ("kept", "proved")]
    mass = float(step.logp_NV[0, kept].exp().sum())
    return Fates("", fates, (None,) * len(tokens), None, mass, tau)


OF_PICKS: dict[type, Callable[[Any, Tensor, Step, Sequence[int]], Fates]] = {
    Multinomial: _drawn,
    ArgMax: _best,
    Bound: _tested,
}
