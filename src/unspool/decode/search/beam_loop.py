"""The loop that all ranking searches share: read the model, let every beam choose, move the rows.

    while a beam is alive:  step → scores → grow → drop, repeat and reorder rows → step …

How beams choose is the search's own affair (`grow`). The beams of a request share a tree; when all of them
have ended, the request's best texts are handed out and its rows leave the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from unspool.decode.job import Frontier, Job
from unspool.decode.path import Path
from unspool.decode.ranking.coverage import Attended
from unspool.decode.search.alternatives import alternatives
from unspool.decode.search.beam_state import BeamState, Hypothesis, answers, settle
from unspool.decode.search.reshape import reshape
from unspool.protocols import Step, StepModel, Transform


@dataclass(frozen=True, slots=True)
class View:
    """What the beams see at one step; the rows of the first beam come first, then those of the second …"""

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
) -> Iterator[Frontier]:
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
) -> Iterator[Frontier]:
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
        yield Frontier(tuple(one.path for one in live), tuple(ended))
        if live:
            rows_M = _moved(live, step)
            if rows_M is not None:
                state, attended = state.select(rows_M), attended and attended.select(rows_M)
            tokens = [one.path.tokens[-1] for one in live]
            step, state = model.step(state, torch.tensor(tokens, device=step.logp_NV.device))
            attended = attended and attended.plus(step)


def scores(step: Step, paths: list[Path], transforms: tuple[Transform, ...]) -> Tensor:
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


def _moved(live: Sequence[Hypothesis], step: Step, first: int = 0) -> Tensor | None:
    """Which rows the live hypotheses grew from, counted from `first`; None where they are all, in order."""
    rows = [one.row - first for one in live]
    if rows == list(range(len(step.logp_NV))):
        return None
    return torch.tensor(rows, device=step.logp_NV.device)
