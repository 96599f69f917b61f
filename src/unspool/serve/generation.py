"""One request's work, in its thread: prompts to a job, a search on the shared model, pieces as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unspool.decode.job import Job
from unspool.decode.output import Piece, pieces_of
from unspool.decode.path import Ranked
from unspool.decode.prompts import as_batch
from unspool.decode.request import make_job
from unspool.protocols import Search, StepModel
from unspool.serve.limits import Limits, check_search

SLICE = 64
"""Tokens of a prompt that are scored at once."""


@dataclass(frozen=True)
class Asked:
    """What a request wants."""

    prompts: Any
    search: Search
    options: dict[str, Any]
    """Of `us.generate`."""
    score_prompts: int | None = None
    """How many alternatives to tell at every place of the prompts; None: the prompts are not scored."""


@dataclass(frozen=True)
class Begun:
    """All has been checked, and the prompts are known."""

    job: Job
    scored: Sequence[Piece]
    """The prompts as pieces, where they were to be scored; log p of the first token is NaN."""


def generate(model: StepModel, asked: Asked, limits: Limits, tell: Callable[[Begun | Piece], None]) -> None:
    """Tell that it has begun, and then every piece."""
    check_search(asked.search, limits)
    batch, _ = as_batch(asked.prompts)
    new = asked.options["max_new_tokens"]
    job = make_job(model, batch, **{**asked.options, "max_new_tokens": max(1, min(new, limits.new_tokens))})
    for prompt in job.prompts:
        if len(prompt) > limits.prompt_tokens:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens, and this server reads {limits.prompt_tokens} at most"
            )
    frontiers = asked.search(model, job)
    count = asked.score_prompts
    scored = [] if count is None else [scored_prompt(model, ids, count) for ids in job.prompts]
    tell(Begun(job, scored))
    if new > 0:
        for piece in pieces_of(frontiers, asked.search.streams, model.text):
            tell(piece)


def scored_prompt(model: StepModel, ids: Sequence[int], count: int) -> Piece:
    """A prompt as a piece: log p of each token given those before it, with the most probable ones."""
    step, state = model.start([ids[:1]])
    logps, ranked = [float("nan")], [Ranked((), ())]
    place = 1
    while place < len(ids):
        read = list(ids[place : place + SLICE]) if model.rewindable is not None else [ids[place]]
        rows_TV = step.logp_NV[-1:]
        tokens_1T = torch.tensor([read])
        if model.rewindable is None:
            step, state = model.step(state, tokens_1T[:, 0])
        else:
            step, state = model.rewindable.extend(state, tokens_1T)
        rows_TV = torch.cat([rows_TV, step.logp_NV[:-1]])
        logps += rows_TV.gather(1, tokens_1T.T)[:, 0].tolist()
        values_TK, tokens_TK = rows_TV.topk(min(count, rows_TV.shape[1]))
        for tokens, values in zip(tokens_TK.tolist(), values_TK.tolist(), strict=True):
            best = tuple(zip(tokens, values, strict=True))
            ranked.append(Ranked(best, best))
        place += len(read)
    text = "" if model.text is None else model.text.decode(ids)
    return Piece(text, tuple(ids), 0, 0, None, tuple(logps), tuple(logps), tuple(ranked))
