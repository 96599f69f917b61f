"""Diverse beam search: groups of beams, each of which pays for choosing what the groups before it chose.

    s_g(v) = log p(v | y_{<t}) − λ · |{ h < g, b : y^{h,b}_t = v }|

At every step the groups choose one after the other; group g sees how often each token was just taken by a
hypothesis of groups 1 … g−1 (Hamming diversity at time t), and the price stays in its sums. Each group is a
beam of width/groups with a pool of its own. Asked for n texts, the search gives the best of every group
first, then the second best of every group, and so on, each round ordered by score; what several groups have
found comes once. With one group it is beam search.
Vijayakumar et al. 2018, Algorithm 1 (λ_g = λ, Δ = Hamming).
papers.bib: vijayakumar2018diverse

Symbols: λ is `penalty`, G is `groups`, B is `width`.
Differs from Hugging Face's former group beam search: tokens of hypotheses that end count like any others, and
the n texts come from all groups in turn, not from those with the highest scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import torch
from torch import Tensor

from unspool.decode.search.candidates import propose
from unspool.decode.search.climb import View, climb
from unspool.decode.search.contest import Contest
from unspool.decode.search.rules import Options, RankingSearch, Rules
from unspool.decode.search.tree import Tree
from unspool.decode.transforms.arguments import number, whole
from unspool.protocols import Frontier, Job, StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class DiverseBeam(RankingSearch):
    """DiverseBeam(6, groups=3, penalty=0.5): three beams of two that keep out of each other's way."""

    groups: int
    """How many beams share the width."""
    penalty: float
    """What a group pays for each time that an earlier one has just chosen the same token."""

    def __init__(
        self, width: int, groups: int, penalty: float, *transforms: Transform, **options: Unpack[Options]
    ) -> None:
        super().__init__(width, *transforms, **options)
        whole("DiverseBeam.groups", groups, at_least=1, advice="1 is ordinary beam search.")
        if width % groups:
            raise ValueError(
                f"width={width} cannot be shared by groups={groups} evenly. "
                f"Choose a width such as {groups * (width // groups + 1)}."
            )
        advice = "0.2 to 0.8 are usual; 0 gives every group the same beam."
        number("DiverseBeam.penalty", penalty, at_least=0, advice=advice)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "penalty", penalty)

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """Yield a frontier for each step; a request's texts come when all of its groups have stopped."""
        rules = self.rules.prepared(model, job)
        share = replace(rules, width=rules.width // self.groups)
        trees = [Tree() for _ in job.prompts]
        requests = [
            [_Group(share, job, request, tree, place) for place in range(self.groups)]
            for request, tree in enumerate(trees)
        ]
        return climb(model, job, requests, self._grow)

    def _grow(self, view: View, contests: Sequence[_Group]) -> None:
        """The groups of every request choose in turn; what one takes, those after it pay for."""
        taken: dict[int, list[int]] = {contest.request: [] for contest in contests}
        count = contests[0].rules.candidates(contests[0].job.ends)
        for place in range(self.groups):
            group = [contest for contest in contests if contest.place == place]
            if not group:
                continue
            rows = [contest.first_row + row for contest in group for row in range(len(contest.live))]
            rows_M = torch.tensor(rows, device=view.scores_NV.device)
            found = propose(
                [contest.totals for contest in group],
                count,
                view.step.logp_NV.index_select(0, rows_M),
                self._priced(view.scores_NV.index_select(0, rows_M), group, taken),
                covered_N=None if view.covered_N is None else view.covered_N.index_select(0, rows_M),
            )
            for contest, candidates in zip(group, found, strict=True):
                taken[contest.request] += [candidate.token for candidate in contest.take(candidates)]

    def _priced(self, scores_MV: Tensor, group: Sequence[_Group], taken: dict[int, list[int]]) -> Tensor:
        owners = [contest.request for contest in group for _ in contest.live]
        pairs = [(row, token) for row, request in enumerate(owners) for token in taken[request]]
        if not pairs:
            return scores_MV
        rows_I, tokens_I = torch.tensor(pairs, device=scores_MV.device).unbind(1)
        price_I = scores_MV.new_full((len(pairs),), -self.penalty)
        return scores_MV.index_put((rows_I, tokens_I), price_I, accumulate=True)


class _Group(Contest):
    """One of the beams of a request."""

    def __init__(self, rules: Rules, job: Job, request: int, tree: Tree, place: int) -> None:
        super().__init__(rules, job, request, tree)
        self.place = place
