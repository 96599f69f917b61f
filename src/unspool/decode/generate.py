"""The one loop that users call: prompts in, finished texts out; `stream` shows them as they grow.

`stream` and `generate` consume the same iterator of frontiers, so that what is streamed is what is returned.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, Unpack, overload

from unspool import defaults
from unspool.decode.combine.lockstep import check_model
from unspool.decode.job import Frontier, Job
from unspool.decode.loops import Loop, OnLoop, loop_judge
from unspool.decode.path import Path, Ranked
from unspool.decode.prompts import Message, as_batch, check_ids, ids_of, whole
from unspool.decode.room import room
from unspool.decode.search.tree import Node
from unspool.decode.spec import parse
from unspool.protocols import Finish, Search, StepModel, Text


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
    """log p of each token in the distribution that it was drawn from, transforms applied; what it added to
    the sum of a beam that adds up another score (contrastive decoding's difference, which may be above 0)."""
    finish: Finish
    """Why it ended: "eos", "length", "stop" (a stop string or token) or "loop"."""
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
    logps: tuple[float, ...] = ()
    """log p of each of its tokens by the model itself."""
    scores: tuple[float, ...] = ()
    """As in Output, of its tokens."""
    ranked: tuple[Ranked, ...] = ()
    """As in Output, of its tokens."""


class Options(TypedDict, total=False):
    """What `generate` may be told besides the number of answers."""

    max_new_tokens: int
    seed: int | Sequence[int] | None
    stop: str | Sequence[str] | None
    stop_ids: int | Sequence[int]
    on_loop: OnLoop
    alternatives: int
    batch_size: int


One = str | Sequence[int] | Sequence[Message]
Many = Sequence[str] | Sequence[Sequence[int]] | Sequence[Sequence[Message]]


@overload
def generate(  # type: ignore[overload-overlap]  # a string is a sequence of strings to a type checker
    model: StepModel,
    prompts: One,
    search: Search | None = None,
    *,
    n: Literal[1] = 1,
    **options: Unpack[Options],
) -> Output: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: StepModel,
    prompts: Many,
    search: Search | None = None,
    *,
    n: Literal[1] = 1,
    **options: Unpack[Options],
) -> list[Output]: ...
@overload
def generate(  # type: ignore[overload-overlap]
    model: StepModel, prompts: One, search: Search | None = None, *, n: int, **options: Unpack[Options]
) -> list[Output]: ...
@overload
def generate(
    model: StepModel, prompts: Many, search: Search | None = None, *, n: int, **options: Unpack[Options]
) -> list[list[Output]]: ...
def generate(
    model: StepModel,
    prompts: One | Many,
    search: Search | None = None,
    *,
    max_new_tokens: int = defaults.NEW_TOKENS,
    n: int = 1,
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] | None = (),
    stop_ids: int | Sequence[int] = (),
    on_loop: OnLoop = "ignore",
    alternatives: int = 0,
    batch_size: int = defaults.ROWS,
) -> Any:
    """Generate text after each prompt.

    One prompt gives one Output, a list of prompts a list; with n > 1 each becomes a list of n Outputs.
    A prompt is a string, a row of token ids (an array or a tensor, too), or the messages of a chat. `search`
    is how text is decoded, Sample(Temperature(0.8), TopP(0.95)) where none is given. `seed` is one number for
    every prompt, or one for each: the same prompt and seed give the same text, alone or in any batch. `stop`
    strings end a text and are cut from it; `stop_ids` are tokens that end it and are not shown. `on_loop`
    says what happens when a text goes round in circles: "ignore", "stop", or a function of the path and its
    Loop that returns True to stop. `alternatives` is how many of the most probable tokens to keep at every
    step. `batch_size` is how many rows are decoded side by side at most; it changes no text.

    A ranking search may find fewer than n texts (there may not be as many), never one text twice.
    """
    search = checked_search(search)
    batch, alone = as_batch(prompts)
    job = make_job(
        model,
        batch,
        max_new_tokens=max_new_tokens,
        n=n,
        seed=seed,
        stop=stop,
        stop_ids=stop_ids,
        on_loop=on_loop,
        alternatives=alternatives,
        batch_size=batch_size,
    )
    outputs: list[list[Output]] = [[] for _ in batch]
    for path in finished(model, job, search):
        outputs[path.request].append(output_of(path, job, model.text))
    found = [group if job.n > 1 else group[0] for group in outputs]
    return found[0] if alone else found


def stream(
    model: StepModel,
    prompts: One | Many,
    search: Search | None = None,
    *,
    max_new_tokens: int = defaults.NEW_TOKENS,
    n: int = 1,
    seed: int | Sequence[int] | None = None,
    stop: str | Sequence[str] | None = (),
    stop_ids: int | Sequence[int] = (),
    on_loop: OnLoop = "ignore",
    alternatives: int = 0,
    batch_size: int = defaults.ROWS,
) -> Iterator[Piece]:
    """Yield pieces of text as they become certain; the arguments are those of `generate`.

    Pieces of different prompts come interleaved, told apart by `request` and `sample`. A search that may
    still change its mind (beam) shows everything at its end.
    """
    search = checked_search(search)
    job = make_job(
        model,
        as_batch(prompts)[0],
        max_new_tokens=max_new_tokens,
        n=n,
        seed=seed,
        stop=stop,
        stop_ids=stop_ids,
        on_loop=on_loop,
        alternatives=alternatives,
        batch_size=batch_size,
    )
    return _pieces(search(model, job), search.streams, model.text)


def make_job(
    model: StepModel,
    prompts: Sequence[Any],
    *,
    max_new_tokens: int,
    n: int,
    seed: int | Sequence[int] | None,
    stop: str | Sequence[str] | None,
    stop_ids: int | Sequence[int] = (),
    on_loop: OnLoop = "ignore",
    alternatives: int = 0,
    batch_size: int = defaults.ROWS,
) -> Job:
    """Everything checked before the model is called once."""
    check_model(model)
    if not prompts:
        raise ValueError("there is no prompt: give a string, a list of token ids, or a list of these")
    longest = _counted("max_new_tokens", max_new_tokens)
    ids = [ids_of(model, prompt, place) for place, prompt in enumerate(prompts)]
    ends = frozenset(_stop_ids(stop_ids))
    check_ids(model.vocab_size, sorted(ends), "stop_ids")
    sources = model.answers
    stops = _stop_strings(model, stop)
    watches = (
        []
        if model.text is None
        else [model.text.watch(stops, after=None if sources else tokens[-1]) for tokens in ids]
    )
    return Job(
        prompts=tuple(ids),
        limits=tuple(_limit(model, tokens, longest, place) for place, tokens in enumerate(ids)),
        seeds=_seeds(seed, len(prompts)),
        n=_counted("n", n),
        eos=model.text.eos_ids if model.text is not None else frozenset(),
        watches=tuple(watches),
        judge=loop_judge(on_loop),
        alternatives=_counted("alternatives", alternatives, at_least=0, at_most=model.vocab_size),
        stop_ids=ends,
        answers=sources,
        rows=_counted("batch_size", batch_size),
    )


def checked_search(search: Any) -> Search:
    """The search that was given, or the default one; everything else is refused, with what to write."""
    if search is None:
        return parse(defaults.DECODER)
    if isinstance(search, str):
        raise TypeError(f"the search is the string {search!r:.80}: give us.parse({search!r:.80})")
    if isinstance(search, type):
        raise TypeError(f"the search is the class {search.__name__}: make one, {search.__name__}(…)")
    if not callable(search) or not hasattr(search, "streams"):
        kind = f": put it into one, us.Sample({search!r:.80})" if callable(search) else ""
        raise TypeError(f"{search!r:.80} is no search{kind}. Give one such as us.Greedy() or us.Beam(4).")
    found: Search = search
    return found


def finished(model: StepModel, job: Job, search: Search) -> Iterator[Path]:
    """Every finished path, by prompt and by sample, each as soon as all those before it are there."""
    waiting: list[dict[int, Path]] = [{} for _ in job.prompts]
    request = sample = 0
    for frontier in search(model, job):
        for path in frontier.ended:
            waiting[path.request][path.sample] = path
        while request < len(waiting) and sample in waiting[request]:
            yield waiting[request].pop(sample)
            sample += 1
            # A search that ranks texts gives those of a prompt together, and may have fewer than n.
            if sample == job.n or not (search.streams or waiting[request]):
                request, sample = request + 1, 0
    for group in waiting[request:]:
        yield from (group[sample] for sample in sorted(group))


def _pieces(frontiers: Iterator[Frontier], streams: bool, spelling: Text | None) -> Iterator[Piece]:
    shown: dict[tuple[int, int], tuple[int, int]] = {}
    for frontier in frontiers:
        for path in (*(frontier.live if streams else ()), *frontier.ended):
            key = (path.request, path.sample)
            tokens, characters = shown.get(key, (0, 0))
            text = _text(path) if path.finish else "" if path.watch is None else path.watch.text
            if len(text) > characters or path.finish or path.watch is None:
                yield Piece(
                    text[characters:],
                    path.tokens[tokens:],
                    *key,
                    path.finish,
                    path.logps[tokens:],
                    path.scores[tokens:],
                    _readable(path.ranked[tokens:], spelling),
                )
                shown[key] = (len(path.tokens), len(text))


def _text(path: Path) -> str:
    return "" if path.watch is None else path.watch.close()


def _readable(ranked: Sequence[Ranked], spelling: Text | None) -> tuple[Ranked, ...]:
    """The same, with every token's text."""
    if spelling is None:
        return tuple(ranked)
    return tuple(
        replace(each, texts={token: spelling.show(token) for token, _ in (*each.model, *each.drawn)})
        for each in ranked
    )


def output_of(path: Path, job: Job, spelling: Text | None) -> Output:
    """A finished path as what users are given."""
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
        ranked=_readable(path.ranked, spelling),
        loop=path.notes.get("loop"),
        tree=path.notes.get("tree"),
        stats={name: note for name, note in path.notes.items() if name not in ("loop", "tree")},
    )


def _counted(name: str, value: Any, at_least: int = 1, at_most: int | None = None) -> int:
    found = whole(value)
    if found is None or found < at_least or (at_most is not None and found > at_most):
        kind = TypeError if found is None else ValueError
        allowed = f"at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        raise kind(f"{name}={value!r:.80} must be a whole number, {allowed}")
    return found


def _seeds(seed: Any, count: int) -> tuple[int, ...]:
    if seed is None:
        return (secrets.randbits(32),) * count
    one = whole(seed)
    if one is not None:
        return (one,) * count
    seed = seed.tolist() if hasattr(seed, "tolist") else seed
    if isinstance(seed, str | bytes) or not isinstance(seed, Sequence):
        raise TypeError(f"seed={seed!r:.80} must be a whole number, or a list of them, one for each prompt")
    if len(seed) != count:
        raise ValueError(f"{len(seed)} seeds for {count} prompts: give one seed, or one for each prompt")
    seeds = tuple(whole(each) for each in seed)
    if None in seeds:
        raise TypeError(f"seed={seed[seeds.index(None)]!r:.80} must be a whole number")
    return tuple(each for each in seeds if each is not None)


def _stop_strings(model: StepModel, stop: Any) -> list[str]:
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if isinstance(stops, bytes | Mapping) or not isinstance(stops, Sequence):
        raise TypeError(f"stop={stop!r:.80} must be a string or a list of strings")
    for one in stops:
        if not isinstance(one, str):
            raise TypeError(f"stop holds {one!r:.80}, but must hold strings; token ids go into stop_ids")
        if not one:
            raise ValueError("a stop string is empty: it stops every text at once; leave it out")
        if any("\ud800" <= character <= "\udfff" for character in one):
            raise ValueError(f"the stop string {one!r} has half a character in it, which no text ever shows")
    if stops and model.text is None:
        raise ValueError(
            "stop strings need a tokenizer, and this model has none: load it with its tokenizer.json, "
            "or give stop_ids"
        )
    return list(stops)


def _stop_ids(stop_ids: Any) -> list[int]:
    stop_ids = stop_ids.tolist() if hasattr(stop_ids, "tolist") else stop_ids
    one = whole(stop_ids)
    if one is not None:
        return [one]
    if isinstance(stop_ids, str | bytes | Mapping) or not isinstance(stop_ids, Sequence | frozenset | set):
        raise TypeError(f"stop_ids={stop_ids!r:.80} must be a token id or a list of them")
    found = [whole(token) for token in stop_ids]
    if None in found:
        raise TypeError(f"stop_ids={stop_ids!r:.80} must hold whole numbers; strings go into stop")
    return [token for token in found if token is not None]


def _limit(model: StepModel, ids: tuple[int, ...], max_new_tokens: int, place: int) -> int:
    free = room(model, ids)
    if free is None:
        return max_new_tokens
    if free < 1:
        raise ValueError(
            f"prompt {place} has {len(ids)} tokens, and this model's context holds {model.context}, "
            "new ones included: shorten the prompt"
        )
    return min(max_new_tokens, free)
