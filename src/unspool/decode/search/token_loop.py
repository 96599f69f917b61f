"""The loop that all searches share which choose one token at a time and stay with it: read, reshape, pick.

    y_t ~ pick( f_k(… f_1(log p(· | y_{<t})) …) )

A row's randomness depends on its own seed and sample number only, so that neither batch-mates nor order
change it. Rows that end leave the batch.
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
from unspool.decode.picks.multinomial import Multinomial, roll
from unspool.decode.search.alternatives import alternatives
from unspool.decode.search.reshape import on_logits, reshape
from unspool.protocols import Counting, Pick, Step, StepModel, Transform


def run_rows(model: StepModel, job: Job, transforms: tuple[Transform, ...], pick: Pick) -> Iterator[Frontier]:
    """Grow every path by one token a step; finished rows leave the batch."""
    for paths in job.batches():
        yield from _run(model, job, transforms, pick, paths)


def _begin(model: StepModel, job: Job, paths: Sequence[Path]) -> tuple[Step, Any]:
    """Read the prompt of each path, every prompt once."""
    requests = list(dict.fromkeys(path.request for path in paths))
    step, state = model.start([job.prompts[request] for request in requests])
    if len(requests) == len(paths):
        return step, state
    place = {request: row for row, request in enumerate(requests)}
    rows_N = torch.tensor([place[path.request] for path in paths], device=step.logp_NV.device)
    return step.select(rows_N), state.select(rows_N)


def _run(
    model: StepModel, job: Job, transforms: tuple[Transform, ...], pick: Pick, live: Sequence[Path]
) -> Iterator[Frontier]:
    dice = [Random(f"{job.seeds[path.request]}/{path.sample}") for path in live]
    step, state = _begin(model, job, live)
    while live:
        tokens_N, scores_N = draw(step, live, transforms, pick, dice)
        ranked: Sequence[Ranked | None] = [None] * len(live)
        if job.alternatives:
            ranked = alternatives(step.logp_NV, reshape(step, live, transforms), job.alternatives)
        drawn = zip(
            live,
            tokens_N.tolist(),
            _of(step.logp_NV, tokens_N).tolist(),
            scores_N.tolist(),
            ranked,
            strict=True,
        )
        grown = [path.extend(token, logp, score, job, others) for path, token, logp, score, others in drawn]
        if isinstance(pick, Counting):
            grown = [_counted(path, pick, die) for path, die in zip(grown, dice, strict=True)]
        stay = [row for row, path in enumerate(grown) if path.finish is None]
        live = [grown[row] for row in stay]
        yield Frontier(tuple(live), tuple(path for path in grown if path.finish is not None))
        if 0 < len(stay) < len(grown):
            rows = torch.tensor(stay, device=tokens_N.device)
            state, tokens_N = state.select(rows), tokens_N[rows]
            dice = [dice[row] for row in stay]
        if live:
            step, state = model.step(state, tokens_N)


def draw(
    step: Step, history: Sequence[Path], transforms: Sequence[Transform], pick: Pick, dice: Sequence[Random]
) -> tuple[Tensor, Tensor]:
    """(N) tokens, and (N) the log p of each in the distribution that it was drawn from."""
    if pick == Multinomial() and not on_logits(transforms) and shortlist.pays(step.logp_NV, transforms):
        return shortlist.draw(step, history, transforms, roll(dice, step.logp_NV))
    scores_NV = reshape(step, history, transforms)
    tokens_N = pick.draw(scores_NV, step, dice)
    return tokens_N, _of(scores_NV, tokens_N)


def _counted(path: Path, pick: Counting, die: Random) -> Path:
    return path if path.finish is None else replace(path, notes={**path.notes, **pick.counted(die)})


def _of(scores_NV: Tensor, tokens_N: Tensor) -> Tensor:
    return scores_NV.gather(1, tokens_N[:, None]).squeeze(1)
