"""The next token: what the model gives to each, and what decoders make of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.prompts import check_ids, reading
from unspool.decode.request import make_job
from unspool.decode.search.reshape import prepared, reshape
from unspool.protocols import Bindable, Finish, Search, Step, StepModel, Text
from unspool.serve.playground.token_fates import Fates, fates_of, rules_of


@dataclass(frozen=True)
class SeenToken:
    """One token of the vocabulary."""

    id: int
    text: str
    p: float | None = None
    """By the model itself; None for a token that was given."""


@dataclass(frozen=True)
class NextToken:
    """The distribution of the next token, and what each decoder keeps of it."""

    prompt: tuple[SeenToken, ...]
    chosen: tuple[SeenToken, ...]
    """What was chosen after the prompt, with the probabilities that each had."""
    ended: Finish | None
    """Why there is no next token, where one that was chosen ends a text."""
    entropy: float
    """In bits."""
    vocabulary: int
    tokens: tuple[SeenToken, ...]
    """The most probable ones, best first."""
    decoders: tuple[Fates, ...]


def next_token(
    model: StepModel,
    prompt: str | Sequence[int],
    tokens: Sequence[int] = (),
    decoders: Sequence[Search] = (),
    count: int = 40,
) -> NextToken:
    """What may follow the prompt and the tokens that were chosen after it; `count` tokens are told."""
    check_ids(model.vocab_size, tokens, "tokens")
    job = make_job(model, [prompt], max_new_tokens=len(tokens) + 1, n=1, seed=0, stop=None)
    if job.limits[0] <= len(tokens):
        raise ValueError(f"the context of this model is full: it holds {model.context} tokens")
    steps = _steps(model, job.prompts[0], tokens)
    logp_V = steps[-1].logp_NV[0]
    logps = [float(step.logp_NV[0, token]) for step, token in zip(steps, tokens, strict=False)]
    p_V = logp_V.double().exp()
    values, ids = p_V.topk(min(count, len(p_V)))
    best = [(token, p) for token, p in zip(ids.tolist(), values.tolist(), strict=True) if p > 0]
    path = job.path(0, 0)
    for token, logp in zip(tokens, logps, strict=True):
        path = path.extend(token, logp, logp, job)
    return NextToken(
        prompt=tuple(_seen(reading(model)[0], token) for token in job.prompts[0]),
        chosen=tuple(
            _seen(model.text, token, float(torch.tensor(logp).exp()))
            for token, logp in zip(tokens, logps, strict=True)
        ),
        ended=path.finish,
        entropy=float(torch.special.entr(p_V).sum() / torch.tensor(2.0).log()),
        vocabulary=len(p_V),
        tokens=tuple(_seen(model.text, token, p) for token, p in best),
        decoders=tuple(
            _under(model, job, one, steps, tokens, [token for token, _ in best]) for one in decoders
        ),
    )


def _steps(model: StepModel, prompt: Sequence[int], tokens: Sequence[int]) -> list[Step]:
    """What the model says after the prompt, and after each of the tokens."""
    step, state = model.start([prompt])
    steps = [step]
    for token in tokens:
        step, state = model.step(state, torch.tensor([token]))
        steps.append(step)
    return steps


def _under(
    model: StepModel,
    job: Job,
    search: Search,
    steps: Sequence[Step],
    tokens: Sequence[int],
    shown: Sequence[int],
) -> Fates:
    """What one decoder does; an error of its own where it cannot."""
    try:
        rules, pick = rules_of(search)
        transforms = prepared(rules, model, job)
        pick = pick.bind(model, transforms) if isinstance(pick, Bindable) else pick
        path: Path = job.path(0, 0)
        # Rules may look back at what each token was drawn from (Mirostat): they go the whole way again.
        for step, token in zip(steps, tokens, strict=False):
            score = float(reshape(step, [path], transforms)[0, token])
            path = path.extend(token, float(step.logp_NV[0, token]), score, job)
        found = fates_of(pick, reshape(steps[-1], [path], transforms), steps[-1], shown)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        return Fates(repr(search), error=str(error))
    return replace(found, decoder=repr(search))


def _seen(text: Text | None, token: int, p: float | None = None) -> SeenToken:
    return SeenToken(token, f"<{token}>" if text is None else text.show(token), p)
