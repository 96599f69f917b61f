"""One layer of a model's attention, as the page shows it: `diagnose.attention_looks` of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unspool.decode.request import make_job
from unspool.diagnose.attention_looks import Kind, Looks, attention_looks
from unspool.protocols import Search, StepModel

LONGEST = 160
"""Tokens of either side: a map of more cannot be read, and takes memory of its square."""


@dataclass(frozen=True)
class AttentionMap:
    """One layer's heads."""

    kind: Kind
    kinds: tuple[Kind, ...]
    """Which others there are for this model."""
    layer: int
    """Counted from 0."""
    layers: int
    heads: int
    looking: tuple[str, ...]
    looked_at: tuple[str, ...]
    weights: list[list[list[float]]]
    """(H, T, S), rounded to four digits."""


def attention_map(
    model: StepModel,
    prompt: str | Sequence[int],
    search: Search,
    max_new_tokens: int = 0,
    kind: Kind | None = None,
    layer: int = 0,
    *,
    read: Callable[[Callable[[Any], Any]], Any] | None = None,
) -> AttentionMap:
    """Where the heads of one layer look while `search` says up to `max_new_tokens` after the prompt.

    `read` runs a function of the model itself where `model` only stands in for it (`serve`).
    """
    job = make_job(model, [prompt], max_new_tokens=max(1, max_new_tokens), n=1, seed=0, stop=None)
    ids = job.prompts[0]
    said: tuple[int, ...] = ()
    if len(ids) + max_new_tokens > LONGEST:
        raise ValueError(
            f"the prompt has {len(ids)} tokens and {max_new_tokens} are to follow; a map of more than "
            f"{LONGEST} cannot be read: shorten it"
        )
    if max_new_tokens:
        (path,) = (path for frontier in search(model, job) for path in frontier.ended)
        said = path.tokens
    run = read or (lambda work: work(model))
    maps: Mapping[Kind, Looks] = run(lambda it: attention_looks(it, ids, said))
    if not maps:
        raise ValueError("this model has no attention to look at: take a Transformer, or an encoder–decoder")
    chosen: Kind = next(iter(maps)) if kind is None else kind
    if chosen not in maps:
        raise ValueError(f"this model has no {chosen} attention: choose from {', '.join(maps)}")
    looks = maps[chosen]
    if not 0 <= layer < len(looks.layers):
        raise ValueError(f"layer {layer} is not there: choose from 0 to {len(looks.layers) - 1}")
    weights = (looks.layers[layer].double() * 1e4).round().div(1e4).tolist()
    return AttentionMap(
        chosen, tuple(maps), layer, len(looks.layers), len(weights), looks.looking, looks.looked_at, weights
    )
