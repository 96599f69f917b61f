"""From prompts to answers: what each line and the options ask for, decoded in batches, answered in order."""

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
    from unspool.decode.hypothesis import Job
    from unspool.decode.output import Output
    from unspool.interfaces import Decoder, StepModel

ROOM = 32_768
"""How many tokens, prompts and answers, are remembered side by side where no number of rows is asked for."""


@dataclass(frozen=True)
class Request:
    """A prompt, and how it is to be answered."""

    text: str
    """As the model reads it."""
    number: int
    """Which prompt, from 0."""
    spec: str
    """The decoder, as it was written."""
    options: Mapping[str, Any]
    """Of `generate`."""
    id: Any = None
    """What its line calls it."""

    @property
    def kind(self) -> tuple[Any, ...]:
        """What requests that are decoded side by side must share: all but the seed."""
        return self.spec, *(self.options[name] for name in sorted(self.options) if name != "seed")


@dataclass(frozen=True)
class AnsweredRequest:
    """One text for one request."""

    request: Request
    output: Output
    sample: int
    """Which answer to it."""
    alone: bool
    """Whether there is no other, to this prompt or to another."""


def make_requests(
    prompts: Sequence[Prompt], model: StepModel, spec: str, args: argparse.Namespace
) -> list[Request]:
    """Every prompt with what its line asks for, or else the options; one that cannot be read is refused."""
    seed = seed_of(args)
    requests = []
    for number, prompt in enumerate(prompts):
        said = prompt.settings
        stop = said.get("stop", args.stop)
        options = {
            "max_new_tokens": said.get("max_new_tokens", args.max_new_tokens),
            "n": said.get("n", args.n),
            "seed": said.get("seed", seed),
            "stop": (stop,) if isinstance(stop, str) else tuple(stop),
            "stop_ids": tuple(said.get("stop_ids", args.stop_id)),
            "alternatives": args.alternatives,
            "on_loop": _on_loop(said, args),
        }
        text = render(prompt, model, args, options)
        requests.append(Request(text, number, said.get("decoder", spec), options, prompt.id))
    return requests


def _on_loop(said: Mapping[str, Any], args: argparse.Namespace) -> str:
    if said.get("stop_approximate_loops", args.stop_approximate_loops):
        return "stop_approximate"
    return "stop" if said.get("stop_loops", args.stop_loops) else "ignore"


def answers(
    model: StepModel,
    requests: Sequence[Request],
    searches: Mapping[str, Decoder],
    batch_size: int | None = None,
    done: Callable[[], None] = lambda: None,
    first_samples: Sequence[int] = (),
) -> Iterator[AnsweredRequest]:
    """Every answer to every request, in order, as soon as it is there; `done` is called after each request.

    Neighbours of the same kind are decoded side by side, up to `batch_size` rows, or as many as have room.
    A prompt that comes again is its next sample (`decode.rng`), whatever its kind. `first_samples` are the
    sample numbers of requests that are a part of a corpus, which is counted elsewhere.
    """
    from unspool.decode.rng import SampleCounter
    from unspool.decode.run import Run

    counter, at = SampleCounter(), 0
    alone = len(requests) == requests[0].options["n"] == 1
    for _, group in groupby(requests, key=lambda request: request.kind):
        same = list(group)
        options = {**same[0].options, "seed": [request.options["seed"] for request in same]}
        run = Run(model, [request.text for request in same], searches[same[0].spec], **options)
        job = run.job
        counted = counter.first_samples(zip(job.seeds, job.prompts, strict=True), job.n)
        given = tuple(first_samples[at : at + len(same)])
        at += len(same)
        run = run.with_job(rows=batch_size or _rows(job), first_samples=given or counted)
        answered = 0
        for hypothesis in run.finished():
            if hypothesis.request > answered:
                done()
                answered = hypothesis.request
            yield AnsweredRequest(same[answered], run.output(hypothesis), hypothesis.sample, alone)
        done()


def _rows(job: Job) -> int:
    longest = max(len(ids) + limit for ids, limit in zip(job.prompts, job.limits, strict=True))
    return max(1, min(job.rows, ROOM // longest))


# An answer as a line of JSON.


def answer_line(answer: AnsweredRequest, decoders: Mapping[str, str], models: Models) -> str:
    """What was asked, what was said, and by whom; `decoders` are the searches of specifications."""
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
            {
                "model": _tokens(step.model, step.texts),
                "drawn": _tokens(step.drawn, step.texts),
            }
            for step in output.ranked
        ]
    if request.id is not None:
        record = {"id": request.id, **record}
    return json_line(record) + "\n"


def _tokens(ranked: Sequence[tuple[int, float]], texts: Mapping[int, str]) -> list[dict[str, Any]]:
    return [{"token": token, "text": texts.get(token), "logp": logp} for token, logp in ranked]
