"""Requests of `unspool generate`: prompts with their settings, decoded in batches, returned in order."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from unspool.cli.models import Models
from unspool.cli.output import json_line
from unspool.cli.parser import seed_of
from unspool.cli.prompts import Prompt, render

if TYPE_CHECKING:
    from unspool.decode.output import Output
    from unspool.interfaces import Decoder, StepModel

MAX_BATCH_TOKENS = 32_768
"""Tokens of prompts and new text in one batch, if --batch-size is not given."""


@dataclass(frozen=True)
class Request:
    """A prompt with its decoder and options."""

    text: str
    """The string that the model reads."""
    number: int
    """Index of the prompt."""
    spec: str
    """The decoder as a string."""
    options: Mapping[str, Any]
    """Keyword arguments of `generate`."""
    id: Any = None
    """The "id" of its JSON line."""


@dataclass(frozen=True)
class Answer:
    """One generated text."""

    request: Request
    output: Output
    sample: int
    """Index among the texts of its prompt."""


def make_requests(
    prompts: Sequence[Prompt], model: StepModel, spec: str, args: argparse.Namespace
) -> list[Request]:
    """A request for every prompt that is not blank; settings of a line override the options."""
    seed = seed_of(args)
    requests = []
    for number, prompt in enumerate(prompts):
        if prompt.is_blank:
            continue
        own = prompt.settings
        stop = own.get("stop", args.stop)
        on_loop = "stop" if own.get("stop_loops", args.stop_loops) else "ignore"
        if own.get("stop_approximate_loops", args.stop_approximate_loops):
            on_loop = "stop_approximate"
        options = {
            "max_new_tokens": own.get("max_new_tokens", args.max_new_tokens),
            "n": own.get("n", args.n),
            "seed": own.get("seed", seed),
            "stop": (stop,) if isinstance(stop, str) else tuple(stop),
            "stop_ids": tuple(own.get("stop_ids", args.stop_id)),
            "alternatives": args.alternatives,
            "on_loop": on_loop,
        }
        text = render(prompt, model, args, options)
        requests.append(Request(text, number, own.get("decoder", spec), options, prompt.id))
    return requests


def generate_answers(
    model: StepModel,
    requests: Sequence[Request],
    decoders: Mapping[str, Decoder],
    batch_size: int | None = None,
    done: Callable[[], None] = lambda: None,
    first_samples: Sequence[int] = (),
) -> Iterator[Answer]:
    """Yield the texts of all requests, in order, as they finish; `done` is called after each request.

    Neighbouring requests that differ only in text and seed are decoded together, at most `batch_size` rows at
    a time.
    A repeated prompt is the next sample of that prompt (`decode.rng`). `first_samples` overrides the sample
    indices, for requests that are a part of a larger corpus.
    """
    from unspool.decode.rng import SampleCounter
    from unspool.decode.run import Run

    counter, at = SampleCounter(), 0
    for _, group in groupby(requests, key=lambda request: (request.spec, {**request.options, "seed": None})):
        same = list(group)
        options = {**same[0].options, "seed": [request.options["seed"] for request in same]}
        run = Run(model, [request.text for request in same], decoders[same[0].spec], **options)
        job = run.job
        counted = counter.first_samples(zip(job.seeds, job.prompts, strict=True), job.n)
        given = tuple(first_samples[at : at + len(same)])
        at += len(same)
        longest = max(len(ids) + limit for ids, limit in zip(job.prompts, job.limits, strict=True))
        rows = batch_size or max(1, min(job.rows, MAX_BATCH_TOKENS // longest))
        run = run.with_job(rows=rows, first_samples=given or counted)
        answered = 0
        for hypothesis in run.finished():
            if hypothesis.request > answered:
                done()
                answered = hypothesis.request
            yield Answer(same[answered], run.output(hypothesis), hypothesis.sample)
        done()


def answer_json(answer: Answer, decoders: Mapping[str, str], models: Models) -> str:
    """The JSON line of an answer; `decoders` maps the spec of a request to the repr of its decoder."""
    request, output = answer.request, answer.output
    record = {
        "prompt": request.text,
        "sample": answer.sample,
        "text": output.text,
        "tokens": output.tokens,
        "logps": output.logps,
        "scores": output.scores,
        "total": output.total,
        "finish_reason": output.finish_reason,
        "seed": output.seed,
        "decoder": decoders[request.spec],
        **models.record(),
    }
    if output.ranked:
        record["ranked"] = [
            {"model": _tokens(step.model, step.texts), "drawn": _tokens(step.drawn, step.texts)}
            for step in output.ranked
        ]
    if request.id is not None:
        record = {"id": request.id, **record}
    return json_line(record) + "\n"


def _tokens(ranked: Sequence[tuple[int, float]], texts: Mapping[int, str]) -> list[dict[str, Any]]:
    return [{"token": token, "text": texts.get(token), "logp": logp} for token, logp in ranked]
