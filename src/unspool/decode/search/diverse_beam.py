"""Diverse beam search: groups of beams, each penalised for tokens that earlier groups chose.

    s_g(v) = log p(v | y_{<t}) − λ · |{ h < g, b : y^{h,b}_t = v }|

At every step the groups choose one after the other. Group g is penalised by how often hypotheses of groups 1
… g−1 chose the same token at this step (Hamming diversity), and its sums include the penalty. Each group is
a beam of width/groups with its own pool. The n texts are the best of every group, then the second best of
every group, and so on, each round ordered by score and without duplicates. One group is plain beam search.
Vijayakumar et al. 2018, Algorithm 1 (λ_g = λ, Δ = Hamming). papers.bib: vijayakumar2018diverse

Symbols: λ is `penalty`, G is `groups`, B is `width`. Differs from Hugging Face's former group beam search:
tokens of hypotheses that end count, too, and the n texts are taken from all groups in turn, not by the
highest score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import torch
from torch import Tensor

from unspool.arguments import LARGEST_BIAS, as_int, as_number, set_fields
from unspool.decode.hypothesis import Job, SearchStep
from unspool.decode.search.beam import BeamScores, run_beams
from unspool.decode.search.beam_state import BeamKeywords, BeamOptions, BeamSearch, BeamState, Tree
from unspool.interfaces import StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class DiverseBeam(BeamSearch):
    """DiverseBeam(6, groups=3, penalty=0.5): three groups of two beams with different texts."""

    groups: int
    """Number of groups that share the width."""
    penalty: float
    """λ: subtracted for each hypothesis of an earlier group that chose the same token at this step."""

    def __init__(
        self,
        width: int,
        groups: int,
        penalty: float,
        *transforms: Transform,
        **keywords: Unpack[BeamKeywords],
    ) -> None:
        super().__init__(width, *transforms, **keywords)
        groups = as_int("DiverseBeam.groups", groups, at_least=1, advice="1 is ordinary beam search.")
        if width % groups:
            raise ValueError(
                f"width={width} is not a multiple of groups={groups}: "
                f"choose a width such as {groups * (width // groups + 1)}"
            )
        advice = "Common values are 0.2 to 0.8; 0 gives every group the same beam."
        limits = {"at_least": 0, "at_most": LARGEST_BIAS}
        penalty = as_number("DiverseBeam.penalty", penalty, **limits, advice=advice)
        set_fields(self, groups=groups, penalty=penalty)

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        options = self.options.bind(model, job)
        share = replace(options, width=options.width // self.groups)
        trees = [Tree() for _ in job.prompts]
        requests = [
            [_Group(share, job, request, tree, place) for place in range(self.groups)]
            for request, tree in enumerate(trees)
        ]
        return run_beams(model, job, requests, self._grow)

    def _grow(self, inputs: BeamScores, beams: Sequence[_Group]) -> None:
        """Let the groups of every request choose in turn, with penalties for the choices of earlier
        groups."""
        taken: dict[int, list[int]] = {beam.request: [] for beam in beams}
        for place in range(self.groups):
            group = [beam for beam in beams if beam.place == place]
            if not group:
                continue
            rows = [beam.first_row + row for beam in group for row in range(len(beam.live))]
            own = inputs.select(torch.tensor(rows, device=inputs.scores_NV.device))
            own = replace(own, scores_NV=self._penalised(own.scores_NV, group, taken))
            for beam, candidates in zip(group, own.propose(group), strict=True):
                taken[beam.request] += [candidate.token for candidate in beam.take(candidates)]

    def _penalised(self, scores_MV: Tensor, group: Sequence[_Group], taken: dict[int, list[int]]) -> Tensor:
        owners = [beam.request for beam in group for _ in beam.live]
        pairs = [(row, token) for row, request in enumerate(owners) for token in taken[request]]
        if not pairs:
            return scores_MV
        rows_I, tokens_I = torch.tensor(pairs, device=scores_MV.device).unbind(1)
        penalty_I = scores_MV.new_full((len(pairs),), -self.penalty)
        return scores_MV.index_put((rows_I, tokens_I), penalty_I, accumulate=True)


class _Group(BeamState):
    """One group of a request."""

    def __init__(self, options: BeamOptions, job: Job, request: int, tree: Tree, place: int) -> None:
        super().__init__(options, job, request, tree)
        self.place = place
