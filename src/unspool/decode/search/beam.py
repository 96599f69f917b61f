"""Beam search: keep the w best hypotheses at every step; diverse beam search does so in groups.

    Y_t = best_w { y ∘ v :  y ∈ Y_{t−1},  v ∈ V }   by   Σ_{i≤t} s(y_i),   s = log p after transforms

A hypothesis that ends (end-of-text token, stop string, limit) moves to a pool of finished ones, ranked by
`length_penalty` and `coverage`; `stop` decides when a full pool ends the search. Width 1 is greedy search; a
width of at least |V|^T is exact search over T tokens (with `Proved`, for any length penalty).
Sutskever, Vinyals & Le 2014, §3.2 (papers.bib: sutskever2014sequence).
Patience, Kasai et al. 2022: the pool holds ⌈patience · width⌉ hypotheses (p·k there).
papers.bib: kasai2022beam

The semantics are those of Hugging Face's `generate(num_beams=…)`: max(2, 1 + |eos|)·w candidates are
considered, only the first w of them may end, and lengths exclude the prompt. Differs from it: hypotheses are
never duplicated to fill the beam, so that a request with fewer than n possible texts returns fewer; reshaped
scores are normalised again; of equal scores the smaller (hypothesis, token id) is first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar, Unpack

import torch
from torch import Tensor

from unspool.arguments import LARGEST_BIAS, as_int, as_number, set_fields
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.ranking import Attended
from unspool.decode.search.beam_state import (
    BeamItem,
    BeamKeywords,
    BeamOptions,
    BeamSearch,
    BeamState,
    Tree,
    best_texts,
    stop_finished_beams,
)
from unspool.decode.search.candidates import Candidate, alternatives, propose
from unspool.decode.search.sampling import reshape
from unspool.interfaces import Step, StepModel, Transform


@dataclass(frozen=True, slots=True)
class BeamScores:
    """The scores of one step for all beams, with the rows of one beam after those of the other."""

    step: Step
    scores_NV: Tensor
    """What every token adds to the sum of its row."""
    covered_N: Tensor | None
    """The coverage penalty of every row if it ends now."""

    def propose(self, beams: Sequence[BeamState], **keys: Any) -> list[list[Candidate]]:
        sums, count = [beam.totals for beam in beams], beams[0].candidates
        return propose(sums, count, self.step.logp_NV, self.scores_NV, covered_N=self.covered_N, **keys)

    def select(self, rows_M: Tensor) -> BeamScores:
        covered_M = None if self.covered_N is None else self.covered_N.index_select(0, rows_M)
        return BeamScores(self.step.select(rows_M), self.scores_NV.index_select(0, rows_M), covered_M)


C = TypeVar("C", bound=BeamState)


def run_beams(
    model: StepModel,
    job: Job,
    requests: Sequence[Sequence[C]],
    grow: Callable[[BeamScores, Sequence[C]], None],
    *,
    use_model_scores: bool = True,
) -> Iterator[SearchStep]:
    """The loop of all beam searches: read the model, let `grow` choose for every beam, reorder the rows.

    The beams of a request share a tree. When all of them have stopped, the best texts of the request are
    yielded and its rows leave the batch. `use_model_scores=False` sums log p, even if the model has
    `score_NV`.
    """
    options = requests[0][0].options
    requests_per_batch = max(1, job.rows // (options.width * len(requests[0])))
    for first in range(0, len(requests), requests_per_batch):
        yield from _run(model, job, requests[first : first + requests_per_batch], grow, use_model_scores)


def _run(
    model: StepModel,
    job: Job,
    requests: Sequence[Sequence[C]],
    grow: Callable[[BeamScores, Sequence[C]], None],
    use_model_scores: bool,
) -> Iterator[SearchStep]:
    options, first = requests[0][0].options, requests[0][0].request
    step, state = model.start([job.prompts[request[0].request] for request in requests])
    attended = None if options.coverage is None else Attended.begin(step)
    live = [item for request in requests for beam in request for item in beam.live]
    rows_M = _changed_rows(live, step, first)
    if rows_M is not None:
        step, state = step.select(rows_M), state.select(rows_M)
        attended = attended and attended.select(rows_M)
    while live:
        step = step if use_model_scores else replace(step, score_NV=None)
        beams = [beam for request in requests for beam in request if beam.live]
        scores_NV = token_scores(step, [item.hypothesis for item in live], options.transforms)
        ranked = alternatives(step.logp_NV, scores_NV, job.alternatives)
        for beam, end in zip(beams, accumulate(len(c.live) for c in beams), strict=True):
            beam.first_row = end - len(beam.live)
            beam.ranked = ranked[beam.first_row : end]
        covered_N = options.coverage(attended) if options.coverage and attended else None
        grow(BeamScores(step, scores_NV, covered_N), beams)
        for request in requests:
            stop_finished_beams(request, rising=step.score_NV is not None)
        ended = [
            hypothesis
            for request in requests
            if _has_stopped(request)
            for hypothesis in best_texts(request, job.n)
        ]
        requests = [request for request in requests if not _has_stopped(request)]
        live = [item for request in requests for beam in request for item in beam.live]
        yield SearchStep(tuple(item.hypothesis for item in live), tuple(ended))
        if live:
            rows_M = _changed_rows(live, step)
            if rows_M is not None:
                state, attended = state.select(rows_M), attended and attended.select(rows_M)
            tokens = [item.hypothesis.tokens[-1] for item in live]
            step, state = model.step(state, torch.tensor(tokens, device=step.logp_NV.device))
            attended = attended and attended.plus(step)


def token_scores(step: Step, hypotheses: list[Hypothesis], transforms: tuple[Transform, ...]) -> Tensor:
    """(N, V): what every token adds to the sum of its row: log p after the transforms.

    If the model has `score_NV` (contrastive decoding), it replaces log p, and the transforms change it by as
    much as they change log p.
    """
    reshaped_NV = reshape(step, hypotheses, transforms)
    if step.score_NV is None:
        return reshaped_NV
    if not transforms:
        return step.score_NV
    moved_NV = step.score_NV + (reshaped_NV - step.logp_NV)
    # A token that the model cut has no score. If a transform restores it (a forced token), its log p is used.
    # Tokens that a transform cuts stay cut: −∞ − (−∞) would be NaN.
    moved_NV = torch.where(step.logp_NV == -math.inf, reshaped_NV, moved_NV)
    return moved_NV.masked_fill(reshaped_NV == -math.inf, -math.inf)


def _has_stopped(request: Sequence[BeamState]) -> bool:
    return not any(beam.live for beam in request)


def _changed_rows(live: Sequence[BeamItem], step: Step, first: int = 0) -> Tensor | None:
    """The rows that the live hypotheses continue, counted from `first`; None if all rows stay in order."""
    rows = [item.row - first for item in live]
    if rows == list(range(len(step.logp_NV))):
        return None
    return torch.tensor(rows, device=step.logp_NV.device)


@dataclass(frozen=True, init=False, repr=False)
class Beam(BeamSearch):
    """Beam search; it returns the n best texts it finds: Beam(5, length_penalty=GNMT(0.6)).

    width: the hypotheses kept at every step; 1 is greedy search, 4 to 10 are usual.
    transforms: reshape the scores first: Beam(4, RepetitionPenalty(1.2)).
    length_penalty: ranks finished hypotheses: Sum() (the default), Length(1.0) or GNMT(0.6).
    coverage: penalty for source tokens without attention: Coverage(0.2); for encoder–decoders.
    patience: ⌈patience · width⌉ finished hypotheses are kept; 1 is ordinary beam search.
    stop: decides when the search ends: Proved() (the default: no better text is possible), Heuristic() or
        FirstFull() (both as in Hugging Face transformers).
    """

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        options = self.options.bind(model, job)
        requests = [[BeamState(options, job, request)] for request in range(len(job.prompts))]
        return run_beams(model, job, requests, grow)


def grow(
    inputs: BeamScores,
    beams: Sequence[BeamState],
    keys_NV: Tensor | None = None,
    transform_keys: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Give every beam its best candidates, by the scores or by other keys (see `propose`)."""
    proposals = inputs.propose(beams, keys_NV=keys_NV, transform_keys=transform_keys)
    for beam, candidates in zip(beams, proposals, strict=True):
        beam.take(candidates)


@dataclass(frozen=True, init=False, repr=False)
class DiverseBeam(BeamSearch):
    """DiverseBeam(6, groups=3, penalty=0.5): diverse beam search, three groups of two beams.

        s_g(v) = log p(v | y_{<t}) − λ · |{ h < g, b : y^{h,b}_t = v }|

    At every step the groups choose one after the other. Group g is penalised by how often hypotheses of
    groups 1 … g−1 chose the same token at this step (Hamming diversity), and its sums include the penalty.
    Each group is a beam of width/groups with its own pool. The n texts are the best of every group, then the
    second best of every group, and so on, each round ordered by score and without duplicates. One group is
    plain beam search. Vijayakumar et al. 2018, Algorithm 1 (λ_g = λ, Δ = Hamming).
    papers.bib: vijayakumar2018diverse

    Symbols: λ is `penalty`, G is `groups`, B is `width`. Differs from Hugging Face's former group beam
    search: tokens of hypotheses that end count, too, and the n texts are taken from all groups in turn, not
    by the highest score.
    """

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
        """Let the groups of every request choose in turn, with penalties for earlier choices."""
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
