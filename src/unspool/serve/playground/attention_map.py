"""Where a model's heads look, layer by layer: at the text itself, and from a text to its source.

Attention weights sum to 1 in every row; a language model's rows look at nothing behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.prompts import reading
from unspool.decode.request import make_job
from unspool.protocols import Search, StepModel, Text

Kind = Literal["self", "encoder", "decoder", "source"]
LONGEST = 160
"""Tokens of either side: a map of more cannot be read, and takes memory of its square."""


@dataclass(frozen=True)
class Looks:
    """Maps of one kind: α of every layer, (H, T, S), and the tokens of both sides."""

    layers: tuple[Tensor, ...]
    looking: tuple[str, ...]
    looked_at: tuple[str, ...]


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
    maps: Mapping[Kind, Looks] = run(lambda it: _maps(it, ids, said))
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


@torch.inference_mode()
def _maps(model: Any, ids: Sequence[int], said: Sequence[int]) -> Mapping[Kind, Looks]:
    """Every kind of attention that the model has, over this prompt and what was said after it."""
    text, source_text = model.text, reading(model)[0]
    if not model.answers:
        if model.attention_reading is None:
            return {}
        tokens = (*ids, *said)
        _, (stack,) = model.attention_reading.read_attention(_batch(tokens).to(model.device))
        return {"self": _looks(stack, _shown(text, tokens), _shown(text, tokens))}
    if model.source_attention_reading is None:
        return _stepwise(model, ids, said)
    # What a decoder reads is the text behind its BOS; the last token is said, and not read.
    (source,) = model.source_ends.sources([ids], model.context)
    inputs = (model.ends.bos, *said[:-1]) if said else (model.ends.bos,)
    batch = _batch(inputs, source).to(model.device)
    _, (encoder, decoder) = model.attention_reading.read_attention(batch)
    across = model.source_attention_reading.read_source_attention(batch)
    sources, targets = _shown(source_text, source), _shown(text, inputs)
    says = _shown(text, said or inputs)
    return {
        "source": _looks(across, says, sources),
        "encoder": _looks(encoder, sources, sources),
        "decoder": _looks(decoder, targets, targets),
    }


def _stepwise(model: Any, ids: Sequence[int], said: Sequence[int]) -> Mapping[Kind, Looks]:
    """One map from Step.attention, where a model tells no more than that (an RNN with attention)."""
    step, state = model.start([ids])
    rows = [step.attention]
    for token in said[:-1]:
        step, state = model.step(state, torch.tensor([token]))
        rows.append(step.attention)
    if rows[0] is None:
        return {}
    alpha_TS = torch.cat(rows)
    sources = _shown(reading(model)[0], ids)
    framed = (*sources, *("end" for _ in range(alpha_TS.shape[1] - len(sources))))
    says = _shown(model.text, said) if said else ("first",)
    return {"source": Looks((alpha_TS[None],), says, framed)}


def _looks(stack: Any, looking: tuple[str, ...], looked_at: tuple[str, ...]) -> Looks:
    return Looks(tuple(alpha_NHTS[0] for alpha_NHTS in stack.layers), looking, looked_at)


def _batch(tokens: Sequence[int], source: Sequence[int] | None = None) -> Batch:
    inputs = torch.tensor([list(tokens)])
    lengths, none = torch.tensor([len(tokens)]), torch.zeros(inputs.shape)
    if source is None:
        return Batch(inputs, lengths, inputs, none)
    return Batch(inputs, lengths, inputs, none, torch.tensor([list(source)]), torch.tensor([len(source)]))


def _shown(text: Text | None, tokens: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"<{token}>" if text is None else text.show(token) for token in tokens)
