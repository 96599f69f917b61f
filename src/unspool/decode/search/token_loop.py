"""The loop that all searches share which choose one token at a time and stay with it: read, reshape, pick.

    y_t ~ pick( f_k(… f_1(log p(· | y_{<t})) …) )

Each row draws from its own random stream (`decode.rng`): the rest of the batch and its order do not change
it. Rows that end leave the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.decode import shortlist
from unspool.decode.job import Frontier, Job
from unspool.decode.path import Path, Ranked
from unspool.decode.picks.argmax import ArgMax
from unspool.decode.picks.multinomial import Multinomial, draw_uniform
from unspool.decode.search.alternatives import alternatives
from unspool.decode.search.reshape import on_logits, reshape
from unspool.protocols import Counting, Pick, Step, StepModel, Transform


def run_rows(model: StepModel, job: Job, transforms: tuple[Transform, ...], pick: Pick) -> Iterator[Frontier]:
    """Grow every path by one token a step; finished rows leave the batch."""
    beginning: _Beginning | None = None
    for paths in job.batches():
        requests = list(dict.fromkeys(path.request for path in paths))
        if beginning is None or beginning.requests != requests:
            beginning = _Beginning(model, job, requests)
        yield from _run(model, job, transforms, pick, paths, beginning)


class _Beginning:
    """What a model says after some prompts, each read once for all the paths that continue it.

    Thousands of samples of one prompt share its first Step from batch to batch. A state, which is used up by
    those who go on from it, is copied to as many rows as do go on, and made anew for the next batch.
    """

    def __init__(self, model: StepModel, job: Job, requests: Sequence[int]) -> None:
        self.requests = requests
        self._model, self._prompts = model, [job.prompts[request] for request in requests]
        self._place = {request: row for row, request in enumerate(requests)}
        self._step, self._state = model.start(self._prompts)

    def step(self, paths: Sequence[Path]) -> Step:
        """The first Step of each path."""
        return self._step if self._one_each(paths) else self._step.select(self._rows(paths))

    def state(self, paths: Sequence[Path]) -> Any:
        """The state of those of the paths that go on."""
        state = self._model.start(self._prompts)[1] if self._state is None else self._state
        self._state = None
        return state if self._one_each(paths) else state.select(self._rows(paths))

    def _one_each(self, paths: Sequence[Path]) -> bool:
        return [path.request for path in paths] == self.requests

    def _rows(self, paths: Sequence[Path]) -> Tensor:
        places = [self._place[path.request] for path in paths]
        return torch.tensor(places, device=self._step.logp_NV.device)


def _run(
    model: StepModel,
    job: Job,
    transforms: tuple[Transform, ...],
    pick: Pick,
    live: Sequence[Path],
    beginning: _Beginning,
) -> Iterator[Frontier]:
    rngs = [job.rng(path) for path in live]
    counting = pick if isinstance(pick, Counting) else None  # once: to ask takes as long as a small product
    step, state = beginning.step(live), None
    while live:
        tokens_N, scores_N = draw(step, live, transforms, pick, rngs)
        scores = scores_N.tolist()
        ranked: Sequence[Ranked | None] = [None] * len(live)
        if job.alternatives:
            ranked = alternatives(step.logp_NV, reshape(step, live, transforms), job.alternatives)
        plain = not transforms and type(pick) is ArgMax  # then the scores are log p
        logps = scores if plain else _of(step.logp_NV, tokens_N).tolist()
        drawn = zip(live, tokens_N.tolist(), logps, scores, ranked, strict=True)
        grown = [path.extend(token, logp, score, job, others) for path, token, logp, score, others in drawn]
        if counting is not None:
            grown = [_counted(path, counting, rng) for path, rng in zip(grown, rngs, strict=True)]
        stay = [row for row, path in enumerate(grown) if path.finish is None]
        live = [grown[row] for row in stay]
        yield Frontier(tuple(live), tuple(path for path in grown if path.finish is not None))
        if not live:
            return
        if len(stay) < len(grown):
            rows = torch.tensor(stay, device=tokens_N.device)
            state, tokens_N = None if state is None else state.select(rows), tokens_N[rows]
            rngs = [rngs[row] for row in stay]
        step, state = model.step(beginning.state(live) if state is None else state, tokens_N)


def draw(
    step: Step, history: Sequence[Path], transforms: Sequence[Transform], pick: Pick, rngs: Sequence[Random]
) -> tuple[Tensor, Tensor]:
    """(N) tokens, and (N) the log p of each in the distribution that it was drawn from."""
    short = type(pick) is Multinomial and shortlist.pays(step.logp_NV)
    if short and not on_logits(transforms):
        return shortlist.draw(step, history, transforms, draw_uniform(rngs, step.logp_NV))
    scores_NV = reshape(step, history, transforms)
    if short and shortlist.pays(scores_NV):
        return shortlist.drawn(scores_NV, (), draw_uniform(rngs, scores_NV))
    tokens_N = pick.draw(scores_NV, step, rngs)
    return tokens_N, _of(scores_NV, tokens_N)


def _counted(path: Path, pick: Counting, rng: Random) -> Path:
    return path if path.finish is None else replace(path, notes={**path.notes, **pick.counted(rng)})


def _of(scores_NV: Tensor, tokens_N: Tensor) -> Tensor:
    return scores_NV.gather(1, tokens_N[:, None]).squeeze(1)
