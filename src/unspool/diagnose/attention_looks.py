"""Every attention of a model over one text: its own side's by layer and head, and an answer's to its source.

Weights sum to 1 in every row; a language model's rows look at nothing behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.prompts import reading
from unspool.models.decoding_mode import decoding
from unspool.protocols import AttentionStack, Text

Kind = Literal["self", "encoder", "decoder", "source"]


@dataclass(frozen=True)
class Looks:
    """Maps of one kind: α of every layer, (H, T, S), and the tokens of both sides."""

    layers: tuple[Tensor, ...]
    looking: tuple[str, ...]
    looked_at: tuple[str, ...]


@torch.inference_mode()
def attention_looks(model: Any, ids: Sequence[int], said: Sequence[int]) -> Mapping[Kind, Looks]:
    """Every kind of attention that the model has, over this prompt and what was said after it."""
    if not model.answers:
        return _own_looks(model, (*ids, *said))
    return _all_looks(model, ids, said) or source_looks(model, ids, said)


def _own_looks(model: Any, tokens: Sequence[int]) -> Mapping[Kind, Looks]:
    if model.attention_reading is None:
        return {}
    with decoding(model.attention_reading):
        _, (stack,) = model.attention_reading.read_attention(_batch(tokens).to(model.device))
    shown = spelled(model.text, tokens)
    return {"self": _looks(stack, shown, shown)}


def _all_looks(model: Any, ids: Sequence[int], said: Sequence[int]) -> Mapping[Kind, Looks]:
    if model.source_attention_reading is None:
        return {}
    # What a decoder reads is the text behind its BOS; the last token is said, and not read.
    (source,) = model.source_ends.sources([ids], model.context)
    inputs = (model.ends.bos, *said[:-1]) if said else (model.ends.bos,)
    batch = _batch(inputs, source).to(model.device)
    with decoding(model.attention_reading):
        _, (encoder, decoder) = model.attention_reading.read_attention(batch)
        across = model.source_attention_reading.read_source_attention(batch)
    sources, targets = spelled(reading(model)[0], source), spelled(model.text, inputs)
    return {
        "source": _looks(across, spelled(model.text, said or inputs), sources),
        "encoder": _looks(encoder, sources, sources),
        "decoder": _looks(decoder, targets, targets),
    }


@torch.inference_mode()
def source_looks(model: Any, ids: Sequence[int], said: Sequence[int]) -> Mapping[Kind, Looks]:
    """The one map that an encoder–decoder's steps tell, none where they tell nothing (`Step.attention`)."""
    step, state = model.start([ids])
    rows = [step.attention]
    for token in said[:-1]:
        step, state = model.step(state, torch.tensor([token], device=step.logp_NV.device))
        rows.append(step.attention)
    if rows[0] is None:
        return {}
    alpha_TS = torch.cat(rows)
    sources = spelled(reading(model)[0], ids)
    framed = (*sources, *["⟨end⟩"] * alpha_TS.shape[1])[: alpha_TS.shape[1]]
    says = spelled(model.text, said) if said else ("first",)
    return {"source": Looks((alpha_TS[None],), says, framed)}


def spelled(text: Text | None, tokens: Sequence[int]) -> tuple[str, ...]:
    """Each token as it is shown."""
    return tuple(f"<{token}>" if text is None else text.show(token) for token in tokens)


def _looks(stack: AttentionStack, looking: tuple[str, ...], looked_at: tuple[str, ...]) -> Looks:
    return Looks(tuple(alpha_NHTS[0] for alpha_NHTS in stack.layers), looking, looked_at)


def _batch(tokens: Sequence[int], source: Sequence[int] | None = None) -> Batch:
    inputs = torch.tensor([list(tokens)])
    lengths, none = torch.tensor([len(tokens)]), torch.zeros(inputs.shape)
    if source is None:
        return Batch(inputs, lengths, inputs, none)
    return Batch(inputs, lengths, inputs, none, torch.tensor([list(source)]), torch.tensor([len(source)]))
