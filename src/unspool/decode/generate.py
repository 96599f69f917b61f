"""The one loop that users call: prompts in, finished texts out; `stream` shows them as they grow.

`stream` and `generate` consume the same iterator of frontiers, so that what is streamed is what is returned.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unspool.decode.loops import Loop, OnLoop, loop_judge
from unspool.decode.search.greedy import Greedy
from unspool.decode.search.tree import Node
from unspool.protocols import Answering, Finish, Frontier, Job, Path, Ranked, Search, StepModel

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class Output:
    """One finished text and how it came about."""

    text: str
    """What was generated, without the prompt; empty for a model that has no tokenizer."""
    tokens: tuple[int, ...]
    """Its token ids; the end-of-text token is the last one where finish is "eos"."""
    logps: tuple[float, ...]
    """log p of each token by the model itself."""
    scores: tuple[float, ...]
    """log p of each token in the distribution that it was drawn from, transforms applied."""
    finish: Finish
    """Why it ended: "eos", "length", "stop" (a stop string) or "loop"."""
    seed: int
    """What to pass as `seed` to get this text again."""
    total: float | None = None
    """Score of the whole hypothesis, where the search ranks hypotheses."""
    ranked: tuple[Ranked, ...] = ()
    """The most probable tokens at every step, where `alternatives` were asked for."""
    loop: Loop | None = None
    """Where the text began to go round in circles, and with what period, where it was stopped for that."""
    tree: tuple[Node, ...] | None = field(default=None, compare=False, repr=False)
    """Every hypothesis that a beam looked at, on the best text of each prompt."""
    stats: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What the search counted on the way."""


@dataclass(frozen=True)
class Piece:
    """Text that has become certain since the piece before it."""

    text: str
    tokens: tuple[int, ...]
    request: int
    """Which prompt it answers."""
    sample: int
    """Which of the n answers."""
    finish: Finish | None
    """Set on the last piece of a text."""


def generate(
    model: StepModel,
    prompts: Prompt | Sequence[Prompt],
    search: Search | None = None,
    *,
    max_new_tokens: int = 128,
    n: int = 1,
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] = (),
    on_loop: OnLoop = "ignore",
    alternatives: int = 0,
) -> Any:
    """Generate text after each prompt.

    One prompt gives one Output, a list of prompts a list; with n > 1 each becomes a list of n Outputs.
    A prompt is a string or a sequence of token ids. `seed` is one number for every prompt, or one for each:
    the same prompt and seed give the same text, alone or in any batch. `stop` strings end a text and are cut
    from it. `on_loop` says what happens when a text goes round in circles: "ignore", "stop", or a function of
    the path and its Loop that returns True to stop. `alternatives` is how many of the most probable tokens
    to keep at every step.

    A ranking search may find fewer than n texts (there may not be as many), never one text twice.
    """
    batch = _batch(prompts)
    job = make_job(
        model,
        batch,
        max_new_tokens=max_new_tokens,
        n=n,
        seed=seed,
        stop=stop,
        on_loop=on_loop,
        alternatives=alternatives,
    )
    groups: list[list[Path]] = [[] for _ in batch]
    for frontier in (search or Greedy())(model, job):
        for path in frontier.ended:
            groups[path.request].append(path)
    ranked = [sorted(group, key=lambda path: path.sample) for group in groups]
    outputs = [[_output(path, job) for path in group] for group in ranked]
    answers = [group if n > 1 else group[0] for group in outputs]
    return answers[0] if _is_single(prompts) else answers


def stream(
    model: StepModel,
    prompts: Prompt | Sequence[Prompt],
    search: Search | None = None,
    *,
    max_new_tokens: int = 128,
    n: int = 1,
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] = (),
    on_loop: OnLoop = "ignore",
) -> Iterator[Piece]:
    """Yield pieces of text as they become certain; the arguments are those of `generate`.

    Pieces of different prompts come interleaved, told apart by `request` and `sample`. A search that may
    still change its mind (beam) shows everything at its end.
    """
    job = make_job(
        model, _batch(prompts), max_new_tokens=max_new_tokens, n=n, seed=seed, stop=stop, on_loop=on_loop
    )
    search = search or Greedy()
    return _pieces(search(model, job), search.streams)


def make_job(
    model: StepModel,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    n: int,
    seed: int | Sequence[int] | None,
    stop: str | Sequence[str],
    on_loop: OnLoop = "ignore",
    alternatives: int = 0,
) -> Job:
    """Everything checked before the model is called once."""
    if not prompts:
        raise ValueError("there is no prompt: give a string, a list of token ids, or a list of these")
    if not _is_int(max_new_tokens) or max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens!r} must be a whole number, at least 1")
    if not _is_int(n) or n < 1:
        raise ValueError(f"n={n!r} must be a whole number, at least 1")
    if not _is_int(alternatives) or not 0 <= alternatives <= model.vocab_size:
        raise ValueError(f"alternatives={alternatives!r} must be a whole number from 0 to {model.vocab_size}")
    seeds = _seeds(seed, len(prompts))
    ids = [_ids(model, prompt, place) for place, prompt in enumerate(prompts)]
    limits = [_limit(model, tokens, max_new_tokens, place) for place, tokens in enumerate(ids)]
    stops = [stop] if isinstance(stop, str) else list(stop)
    if stops and model.text is None:
        raise ValueError(
            "stop strings need a tokenizer, and this model has none: load it with its tokenizer.json"
        )
    answers = isinstance(model, Answering) and model.answers
    watches = (
        []
        if model.text is None
        else [model.text.watch(stops, after=None if answers else tokens[-1]) for tokens in ids]
    )
    eos = model.text.eos_ids if model.text is not None else frozenset[int]()
    return Job(tuple(ids), tuple(limits), seeds, n, eos, tuple(watches), loop_judge(on_loop), alternatives)


def _pieces(frontiers: Iterator[Frontier], streams: bool) -> Iterator[Piece]:
    shown: dict[tuple[int, int], tuple[int, int]] = {}
    for frontier in frontiers:
        for path in (*(frontier.live if streams else ()), *frontier.ended):
            key = (path.request, path.sample)
            tokens, characters = shown.get(key, (0, 0))
            text = _text(path) if path.finish else "" if path.watch is None else path.watch.text
            if len(text) > characters or path.finish or path.watch is None:
                yield Piece(text[characters:], path.tokens[tokens:], *key, path.finish)
                shown[key] = (len(path.tokens), len(text))


def _text(path: Path) -> str:
    return "" if path.watch is None else path.watch.close()


def _output(path: Path, job: Job) -> Output:
    if path.finish is None:
        raise RuntimeError("a search ended a path without saying why: this is a bug of that search")
    return Output(
        text=_text(path),
        tokens=path.tokens,
        logps=path.logps,
        scores=path.scores,
        finish=path.finish,
        seed=job.seeds[path.request],
        total=path.total,
        ranked=path.ranked,
        loop=path.notes.get("loop"),
        tree=path.notes.get("tree"),
        stats={name: note for name, note in path.notes.items() if name not in ("loop", "tree")},
    )


def _is_int(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _is_single(prompts: Prompt | Sequence[Prompt]) -> bool:
    return isinstance(prompts, str) or (len(prompts) > 0 and _is_int(prompts[0]))


def _batch(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if not isinstance(prompts, Sequence):
        raise TypeError(
            f"prompts must be a string, a list of token ids, or a list of these, not {prompts!r:.80}"
        )
    return [prompts] if _is_single(prompts) else list(prompts)  # type: ignore[list-item,arg-type]


def _seeds(seed: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    if seed is None:
        return (secrets.randbits(32),) * count
    seeds = (seed,) * count if isinstance(seed, int) else tuple(seed)
    if len(seeds) != count:
        raise ValueError(f"{len(seeds)} seeds for {count} prompts: give one seed, or one for each prompt")
    for each in seeds:
        if not _is_int(each):
            raise TypeError(f"seed={each!r} must be a whole number")
    return seeds


def _ids(model: StepModel, prompt: Prompt, place: int) -> tuple[int, ...]:
    if isinstance(prompt, str):
        if model.text is None:
            raise ValueError(
                f"prompt {place} is text, but this model has no tokenizer: give token ids, "
                "or load the model from a folder with a tokenizer.json"
            )
        ids = tuple(model.text.encode(prompt))
    else:
        ids = tuple(prompt)
    if not ids:
        start = None if model.text is None else model.text.bos_id
        hint = (
            "" if start is None else f"; to begin from nothing, pass [{start}], the beginning-of-text token"
        )
        raise ValueError(f"prompt {place} is empty: give at least one token{hint}")
    for token in ids:
        if not _is_int(token):
            raise TypeError(f"prompt {place} holds {token!r}: token ids are whole numbers")
        if not 0 <= token < model.vocab_size:
            raise ValueError(
                f"prompt {place} holds token {token}, outside the model's vocabulary "
                f"0…{model.vocab_size - 1}: was it encoded with another model's tokenizer?"
            )
    return ids


def _limit(model: StepModel, ids: tuple[int, ...], max_new_tokens: int, place: int) -> int:
    if model.context is None:
        return max_new_tokens
    if isinstance(model, Answering) and model.answers:
        # A source has the same limit to itself, and the model knows what it reads of it. An answer begins
        # with BOS, and a search may read every token of it.
        return min(max_new_tokens, max(1, model.context - 1))
    if len(ids) >= model.context:
        raise ValueError(
            f"prompt {place} has {len(ids)} tokens, and this model's context holds {model.context}, "
            "new ones included: shorten the prompt"
        )
    return min(max_new_tokens, model.context - len(ids))
