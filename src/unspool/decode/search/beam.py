"""Beam search: keep the w best hypotheses at every step.

    Y_t = best_w { y ∘ v :  y ∈ Y_{t−1},  v ∈ V }   by   Σ_{i≤t} s(y_i),   s = log p (reshaped, where asked)

A hypothesis that ends (end-of-text token, stop string, limit) moves to a pool, where `length_penalty` and
`coverage` say what it is worth; `stop` says when a full pool ends the search. Width 1 is greedy search; a
width of at least |V|^T is exact search over T tokens (under `Proved`, for any length penalty).
Sutskever, Vinyals & Le 2014, §3.2.
papers.bib: sutskever2014sequence
Patience, Kasai et al. 2022: the pool holds ⌈patience · width⌉ hypotheses (p·k there).
papers.bib: kasai2022beam

Semantics are those of Hugging Face's `generate(num_beams=…)`: max(2, 1 + |eos|)·w candidates are looked at,
only the first w of them may end, lengths exclude the prompt. Differs from it: no place is ever filled by a
copy of another hypothesis, so that a request with fewer than n possible texts gets fewer; reshaped scores
are normalised again; of equal scores the smaller (hypothesis, token id) always comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.ranking import Attended
from unspool.decode.search.beam_state import BeamItem, BeamSearch, BeamState, Tree, answers, settle
from unspool.decode.search.candidates import alternatives, propose
from unspool.decode.search.sampling import reshape
from unspool.interfaces import Step, StepModel, Transform


@dataclass(frozen=True, slots=True)
class View:
    """What the beams see at one step; the rows of the first beam come first, then those of the second …

    The loop that all ranking searches share: read the model, let every beam choose, move the rows.

        while a beam is alive:  step → scores → grow → drop, repeat and reorder rows → step …

    How beams choose is the search's own affair (`grow`). The beams of a request share a tree; when all of
    them have ended, the request's best texts are handed out and its rows leave the batch.
    """

    step: Step
    scores_NV: Tensor
    """What every token would add to the sum of its row."""
    covered_N: Tensor | None
    """The coverage penalty of every row, were it to end now."""


C = TypeVar("C", bound=BeamState)


def run_beams(
    model: StepModel,
    job: Job,
    requests: Sequence[Sequence[C]],
    grow: Callable[[View, Sequence[C]], None],
    *,
    scored: bool = True,
) -> Iterator[SearchStep]:
    """Run the beams of every request to their end; `grow` lets all of them take their next hypotheses.

    Where the model has a score of its own, it is added up if `scored`, and log p otherwise.
    """
    options = requests[0][0].options
    together = max(1, job.rows // (options.width * len(requests[0])))
    for first in range(0, len(requests), together):
        yield from _run(model, job, requests[first : first + together], grow, scored)


def _run(
    model: StepModel,
    job: Job,
    requests: Sequence[Sequence[C]],
    grow: Callable[[View, Sequence[C]], None],
    scored: bool,
) -> Iterator[SearchStep]:
    options, first = requests[0][0].options, requests[0][0].request
    step, state = model.start([job.prompts[request[0].request] for request in requests])
    attended = None if options.coverage is None else Attended.begin(step)
    live = [one for request in requests for beam in request for one in beam.live]
    rows_M = _moved(live, step, first)
    if rows_M is not None:
        step, state = step.select(rows_M), state.select(rows_M)
        attended = attended and attended.select(rows_M)
    while live:
        step = step if scored else replace(step, score_NV=None)
        beams = [beam for request in requests for beam in request if beam.live]
        scores_NV = scores(step, [one.path for one in live], options.transforms)
        ranked = alternatives(step.logp_NV, scores_NV, job.alternatives) if job.alternatives else []
        for beam, end in zip(beams, accumulate(len(c.live) for c in beams), strict=True):
            beam.first_row = end - len(beam.live)
            beam.ranked = ranked[beam.first_row : end]
        covered_N = options.coverage(attended) if options.coverage and attended else None
        grow(View(step, scores_NV, covered_N), beams)
        for request in requests:
            settle(request, rising=step.score_NV is not None)
        ended = [path for request in requests if _over(request) for path in answers(request, job.n)]
        requests = [request for request in requests if not _over(request)]
        live = [one for request in requests for beam in request for one in beam.live]
        yield SearchStep(tuple(one.path for one in live), tuple(ended))
        if live:
            rows_M = _moved(live, step)
            if rows_M is not None:
                state, attended = state.select(rows_M), attended and attended.select(rows_M)
            tokens = [one.path.tokens[-1] for one in live]
            step, state = model.step(state, torch.tensor(tokens, device=step.logp_NV.device))
            attended = attended and attended.plus(step)


def scores(step: Step, paths: list[Hypothesis], transforms: tuple[Transform, ...]) -> Tensor:
    """(N, V): what every token would add to the sum of its row.

    That is log p as the transforms reshape it. Where the model has a score of its own (contrastive decoding),
    it takes the place of log p, and the transforms move it by as much as they move log p.
    """
    reshaped_NV = reshape(step, paths, transforms)
    if step.score_NV is None:
        return reshaped_NV
    if not transforms:
        return step.score_NV
    moved_NV = step.score_NV + (reshaped_NV - step.logp_NV)
    # What the model had cut has no score of its own: a transform that brings it back (a forced token) says
    # what it counts, and what a transform cuts stays cut (−∞ − (−∞) is no number).
    moved_NV = torch.where(step.logp_NV == -math.inf, reshaped_NV, moved_NV)
    return moved_NV.masked_fill(reshaped_NV == -math.inf, -math.inf)


def _over(request: Sequence[BeamState]) -> bool:
    return not any(beam.live for beam in request)


def _moved(live: Sequence[BeamItem], step: Step, first: int = 0) -> Tensor | None:
    """Which rows the live hypotheses grew from, counted from `first`; None where they are all, in order."""
    rows = [one.row - first for one in live]
    if rows == list(range(len(step.logp_NV))):
        return None
    return torch.tensor(rows, device=step.logp_NV.device)


@dataclass(frozen=True, init=False, repr=False)
class Beam(BeamSearch):
    """Beam(5, length_penalty=GNMT(0.6)): the n best texts it finds, the same every time."""

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield a frontier for each step; a request's texts come when its beam has stopped."""
        options = self.options.prepared(model, job)
        requests = [[BeamState(options, job, request, Tree())] for request in range(len(job.prompts))]
        return run_beams(model, job, requests, grow)


def grow(view: View, beams: Sequence[BeamState]) -> None:
    """Every beam takes its best candidates."""
    count = beams[0].options.candidates(beams[0].job.ends)
    sums = [beam.totals for beam in beams]
    found = propose(sums, count, view.step.logp_NV, view.scores_NV, covered_N=view.covered_N)
    for beam, candidates in zip(beams, found, strict=True):
        beam.take(candidates)
