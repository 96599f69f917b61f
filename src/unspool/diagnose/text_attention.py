"""Attention maps: where a model looks, token by token, and what its heads have in common.

    self-attention:  α[t, u], the share of its attention that the head at token t gives to token u
    to the source:   α[t, s], from each token of an answer to the tokens of what it answers

Bahdanau et al. 2015, figure 3, for maps of the second kind (papers.bib: bahdanau2015neural); Clark et al.
2019, §3, for heads that look at the token before, or at a mark (papers.bib: clark2019what), which where it
begins the text is the attention sink of Xiao et al. 2024 (papers.bib: xiao2024efficient). A head is said to
look at something where it gives it half of its attention or more, averaged over the tokens that could look
elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.combine.lockstep import check_model
from unspool.decode.prompts import reading
from unspool.evaluate.teacher_forcing import forced, token_ids
from unspool.interfaces import AttentionStack, StepModel, TokenizerLike
from unspool.models.sequence_model import decoding

Kind = Literal["self", "encoder", "decoder", "source"]


@dataclass(frozen=True)
class Looks:
    """Maps of one kind: α of every layer, (H, T, S), and the tokens of both sides.

    Every attention of a model over one text: its own side's by layer and head, and an answer's to its source.

    Weights sum to 1 in every row; a language model's rows look at nothing behind them.
    """

    layers: tuple[Tensor, ...]
    looking: tuple[str, ...]
    looked_at: tuple[str, ...]


@torch.inference_mode()
def attention_looks(model: Any, ids: Sequence[int], said: Sequence[int]) -> Mapping[Kind, Looks]:
    """Every kind of attention that the model has, over this prompt and what was said after it."""
    if not model.is_encoder_decoder:
        return _own_looks(model, (*ids, *said))
    return _all_looks(model, ids, said) or source_looks(model, ids, said)


def _own_looks(model: Any, tokens: Sequence[int]) -> Mapping[Kind, Looks]:
    if model.attention_reading is None:
        return {}
    with decoding(model.attention_reading):
        _, (stack,) = model.attention_reading.read_attention(_batch(tokens).to(model.device))
    shown = spelled(model.tokenizer, tokens)
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
    sources, targets = spelled(reading(model)[0], source), spelled(model.tokenizer, inputs)
    return {
        "source": _looks(across, spelled(model.tokenizer, said or inputs), sources),
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
    says = spelled(model.tokenizer, said) if said else ("first",)
    return {"source": Looks((alpha_TS[None],), says, framed)}


def spelled(text: TokenizerLike | None, tokens: Sequence[int]) -> tuple[str, ...]:
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


HALF = 0.5
MOST = 64
"""Tokens of a text: more cannot be seen in a picture."""
PLACES = ("the first token", "the token before", "itself")


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """One head's, or an answer's to its source."""

    layer: int | None
    head: int | None
    weights_TS: Tensor
    looks_at: str
    """One of "the first token", "the token before", "itself", "many tokens" and "the source"."""
    share: float
    """Of its attention, what that gets; of several tokens, what the most watched one of each row gets."""


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Every map of one text."""

    tokens: tuple[str, ...]
    sources: tuple[str, ...]
    """What is looked at: the same tokens, or those of the source."""
    maps: tuple[AttentionMap, ...]

    @property
    def verdict(self) -> str:
        """In words."""
        if self.maps[0].layer is None:
            (one,) = self.maps
            best_T = one.weights_TS.argmax(dim=1)
            forward = float((best_T[1:] >= best_T[:-1]).double().mean()) if len(best_T) > 1 else 1.0
            return (
                f"a token of the answer gives the source token that it watches most {one.share:.0%} of its "
                f"attention, and what is watched moves on, or stays, in {forward:.0%} of the steps"
            )
        counts = Counter(it.looks_at for it in self.maps)
        first = sum(float(it.weights_TS[1:, 0].mean()) for it in self.maps) / len(self.maps)
        said = ", ".join(f"{counts[it]} at {it}" for it in (*PLACES, "many tokens") if counts[it])
        return f"{len(self.maps)} heads look: {said}; the first token gets {first:.0%} of all attention" + (
            " (an attention sink)" if first >= HALF else ""
        )


@torch.no_grad()
def attention_maps(
    model: StepModel, text: str | Sequence[int], source: str | Sequence[int] | None = None
) -> AttentionMaps:
    """Of a text, a string or token ids; an encoder–decoder's is an answer, and needs its source.

    The first 64 tokens are looked at.
    """
    check_model(model)
    if model.is_encoder_decoder:
        return _to_source(model, text, source)
    if source is not None:
        raise ValueError("the model continues texts, and has no use for a source: leave it out.")
    if model.attention_reading is None:
        raise ValueError(f"{type(model).__name__} has no attention that could be looked at.")
    ids = token_ids(model, text, 0)
    if not model.reads_bos and model.tokenizer is not None and ids[:1] == (model.tokenizer.bos_id,):
        ids = ids[1:]
    ids = ids[: min(MOST, model.context or MOST)]
    if len(ids) < 3:
        raise ValueError(f"the text has {len(ids)} tokens, and at least 3 are needed to look elsewhere.")
    looks = attention_looks(model, ids, ())["self"]
    maps = tuple(
        _kind(layer, head, alpha_TT)
        for layer, alpha_HTT in enumerate(looks.layers)
        for head, alpha_TT in enumerate(alpha_HTT.double().cpu())
    )
    return AttentionMaps(looks.looking, looks.looked_at, maps)


def _kind(layer: int, head: int, alpha_TT: Tensor) -> AttentionMap:
    later_TT = alpha_TT[2:]  # the first two tokens cannot but look at the first, or at the one before
    rows_T = torch.arange(2, len(alpha_TT))
    shares = (
        float(later_TT[:, 0].mean()),
        float(alpha_TT[rows_T, rows_T - 1].mean()),
        float(alpha_TT[rows_T, rows_T].mean()),
    )
    best = max(range(3), key=shares.__getitem__)
    if shares[best] >= HALF:
        return AttentionMap(layer, head, alpha_TT, PLACES[best], shares[best])
    return AttentionMap(layer, head, alpha_TT, "many tokens", float(later_TT.max(dim=1).values.mean()))


def _to_source(
    model: StepModel, text: str | Sequence[int], source: str | Sequence[int] | None
) -> AttentionMaps:
    if source is None:
        raise ValueError("the model is an encoder–decoder: give the source that the text answers.")
    (window,) = forced(model, [text], [source], cut=True)
    before, after = window.tokens[: window.first], window.tokens[window.first :][:MOST]
    found = source_looks(model, before, after)
    if not found:
        raise ValueError(
            f"{type(model).__name__} does not tell where it looks: a model that sums the source up, or "
            "one that is made of others, has no such map."
        )
    looks = found["source"]
    weights_TS = looks.layers[0][0].double().cpu()
    one = AttentionMap(None, None, weights_TS, "the source", float(weights_TS.max(dim=1).values.mean()))
    return AttentionMaps(looks.looking, looks.looked_at, (one,))
