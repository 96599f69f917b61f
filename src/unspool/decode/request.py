"""What a user asks for, as a Job: everything is checked before the model is called once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unspool import config
from unspool.decode.combine.lockstep import check_model
from unspool.decode.hypothesis import Job
from unspool.decode.loops import OnLoop, loop_judge
from unspool.decode.prompts import check_ids, ids_of, tokens_left, whole
from unspool.decode.rng import seeds_of
from unspool.interfaces import StepModel


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
    batch_size: int = config.MAX_BATCH_ROWS,
    first_samples: Sequence[int] = (),
) -> Job:
    """The arguments are those of `generate`; `first_samples` is for a corpus that several calls answer."""
    check_model(model)
    if not prompts:
        raise ValueError("there is no prompt: give a string, a list of token ids, or a list of these")
    longest = _counted("max_new_tokens", max_new_tokens)
    ids = [ids_of(model, prompt, place) for place, prompt in enumerate(prompts)]
    ends = frozenset(_stop_ids(stop_ids))
    check_ids(model.vocab_size, sorted(ends), "stop_ids")
    sources = model.is_encoder_decoder
    stops = _stop_strings(model, stop)
    watches = (
        []
        if model.tokenizer is None
        else [model.tokenizer.detokenizer(stops, after=None if sources else tokens[-1]) for tokens in ids]
    )
    return Job(
        prompts=tuple(ids),
        limits=tuple(_limit(model, tokens, longest, place) for place, tokens in enumerate(ids)),
        seeds=seeds_of(seed, len(prompts)),
        n=_counted("n", n, at_most=config.MAX_SAMPLES),
        eos=model.eos_ids,
        detokenizers=tuple(watches),
        stop_condition=loop_judge(on_loop),
        alternatives=_counted("alternatives", alternatives, at_least=0, at_most=model.vocab_size),
        stop_ids=ends,
        is_encoder_decoder=sources,
        rows=_counted("batch_size", batch_size),
        first_samples=tuple(first_samples),
    )


def _counted(name: str, value: Any, at_least: int = 1, at_most: int | None = None) -> int:
    found = whole(value)
    if found is None or found < at_least or (at_most is not None and found > at_most):
        kind = TypeError if found is None else ValueError
        allowed = f"at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        raise kind(f"{name}={value!r:.80} must be a whole number, {allowed}")
    return found


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
    if stops and model.tokenizer is None:
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
    free = tokens_left(model, ids)
    if free is None:
        return max_new_tokens
    if free < 1 and model.context is not None and len(ids) < model.context:
        raise ValueError(
            f"the negative prompt read beside prompt {place} leaves no room for a new token in a context of "
            f"{model.context}: shorten it"
        )
    if free < 1:
        raise ValueError(
            f"prompt {place} has {len(ids)} tokens, and this model's context holds {model.context}, "
            "new ones included: shorten the prompt"
        )
    return min(max_new_tokens, free)
