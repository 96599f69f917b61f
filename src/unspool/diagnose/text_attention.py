"""Attention maps of a text, and a classification of the heads.

    self-attention:   α[t, u], the attention weight of a head from token t to token u
    cross-attention:  α[t, s], from each token of the output to the tokens of the source

Bahdanau et al. 2015, figure 3, for maps of cross-attention (papers.bib: bahdanau2015neural); Clark et al.
2019, §3, for heads that attend to the previous token or to a separator (papers.bib: clark2019what). Attention
to the first token is the attention sink of Xiao et al. 2024 (papers.bib: xiao2024efficient). A head is
assigned to the target that gets at least half of its attention, averaged over the tokens that have a choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.lockstep import check_model
from unspool.decode.prompts import prompt_vocabulary
from unspool.evaluate.teacher_forcing import forced, token_ids
from unspool.interfaces import AttentionStack, StepModel, TokenizerLike
from unspool.models.sequence_model import eval_inference

Kind = Literal["self", "encoder", "decoder", "source"]


@dataclass(frozen=True)
class AttentionLayers:
    """Attention of one kind: α of every layer (H, T, S), whose rows sum to 1, and the tokens."""

    layers: tuple[Tensor, ...]
    queries: tuple[str, ...]
    keys: tuple[str, ...]


@torch.inference_mode()
def read_attention(model: Any, ids: Sequence[int], output: Sequence[int]) -> Mapping[Kind, AttentionLayers]:
    """Return every kind of attention that the model has, over a prompt and its output."""
    if not model.is_encoder_decoder:
        return _self_attention(model, (*ids, *output))
    return _encoder_decoder_attention(model, ids, output) or source_attention(model, ids, output)


def _self_attention(model: Any, tokens: Sequence[int]) -> Mapping[Kind, AttentionLayers]:
    if model.attention_reading is None:
        return {}
    with eval_inference(model.attention_reading):
        _, (stack,) = model.attention_reading.read_attention(_batch(tokens).to(model.device))
    strings = token_strings(model.tokenizer, tokens)
    return {"self": _as_layers(stack, strings, strings)}


def _encoder_decoder_attention(
    model: Any, ids: Sequence[int], output: Sequence[int]
) -> Mapping[Kind, AttentionLayers]:
    if model.source_attention_reading is None:
        return {}
    # The decoder reads BOS and the output without its last token.
    (source,) = model.source_ends.sources([ids], model.context)
    inputs = (model.ends.bos, *output[:-1]) if output else (model.ends.bos,)
    batch = _batch(inputs, source).to(model.device)
    with eval_inference(model.attention_reading):
        _, (encoder, decoder) = model.attention_reading.read_attention(batch)
        cross_stack = model.source_attention_reading.read_source_attention(batch)
    sources, targets = (
        token_strings(prompt_vocabulary(model)[0], source),
        token_strings(model.tokenizer, inputs),
    )
    return {
        "source": _as_layers(cross_stack, token_strings(model.tokenizer, output or inputs), sources),
        "encoder": _as_layers(encoder, sources, sources),
        "decoder": _as_layers(decoder, targets, targets),
    }


@torch.inference_mode()
def source_attention(model: Any, ids: Sequence[int], output: Sequence[int]) -> Mapping[Kind, AttentionLayers]:
    """Return the cross-attention of `Step.attention`; {} if the model does not provide it."""
    step, state = model.start([ids])
    rows = [step.attention]
    for token in output[:-1]:
        step, state = model.step(state, torch.tensor([token], device=step.logp_NV.device))
        rows.append(step.attention)
    if rows[0] is None:
        return {}
    alpha_TS = torch.cat(rows)
    sources = token_strings(prompt_vocabulary(model)[0], ids)
    source_strings = (*sources, *["⟨end⟩"] * alpha_TS.shape[1])[: alpha_TS.shape[1]]
    output_strings = token_strings(model.tokenizer, output) if output else ("first",)
    return {"source": AttentionLayers((alpha_TS[None],), output_strings, source_strings)}


def token_strings(tokenizer: TokenizerLike | None, tokens: Sequence[int]) -> tuple[str, ...]:
    """Return a readable string for each token."""
    return tuple(f"<{token}>" if tokenizer is None else tokenizer.show(token) for token in tokens)


def _as_layers(stack: AttentionStack, queries: tuple[str, ...], keys: tuple[str, ...]) -> AttentionLayers:
    return AttentionLayers(tuple(alpha_NHTS[0] for alpha_NHTS in stack.layers), queries, keys)


def _batch(tokens: Sequence[int], source: Sequence[int] | None = None) -> Batch:
    inputs = torch.tensor([list(tokens)])
    lengths, none = torch.tensor([len(tokens)]), torch.zeros(inputs.shape)
    if source is None:
        return Batch(inputs, lengths, inputs, none)
    return Batch(inputs, lengths, inputs, none, torch.tensor([list(source)]), torch.tensor([len(source)]))


MAIN_SHARE = 0.5
MAX_TOKENS = 64
"""Maximum number of tokens; more are not readable in a figure."""
TARGETS = ("the first token", "the token before", "itself")


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The map of one head, or of the cross-attention."""

    layer: int | None
    head: int | None
    weights_TS: Tensor
    attends_to: str
    """One of "the first token", "the token before", "itself", "many tokens" and "the source"."""
    share: float
    """Share of the attention on the target; for many tokens, on the largest weight of each row."""


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """All maps of one text."""

    tokens: tuple[str, ...]
    sources: tuple[str, ...]
    """The keys: the same tokens, or those of the source."""
    maps: tuple[AttentionMap, ...]

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.maps[0].layer is None:
            (head_map,) = self.maps
            best_T = head_map.weights_TS.argmax(dim=1)
            forward = float((best_T[1:] >= best_T[:-1]).double().mean()) if len(best_T) > 1 else 1.0
            return (
                f"output tokens give {head_map.share:.0%} of their attention to one source token, which "
                f"moves forward or stays in {forward:.0%} of the steps"
            )
        counts = Counter(head.attends_to for head in self.maps)
        first = sum(float(head.weights_TS[1:, 0].mean()) for head in self.maps) / len(self.maps)
        counts_text = ", ".join(
            f"{counts[target]} to {target}" for target in (*TARGETS, "many tokens") if counts[target]
        )
        return (
            f"{len(self.maps)} heads attend: {counts_text}; the first token gets {first:.0%} of all attention"
            + (" (an attention sink)" if first >= MAIN_SHARE else "")
        )


@torch.no_grad()
def attention_maps(
    model: StepModel, text: str | Sequence[int], source: str | Sequence[int] | None = None
) -> AttentionMaps:
    """Return the attention maps of the first 64 tokens of a text (a string or token ids).

    For an encoder–decoder, the text is the output, and `source` is required.
    """
    check_model(model)
    if model.is_encoder_decoder:
        return _map_to_source(model, text, source)
    if source is not None:
        raise ValueError("source is for encoder–decoders, but the model is a language model: leave it out")
    if model.attention_reading is None:
        raise ValueError(f"{type(model).__name__} does not provide attention weights")
    ids = token_ids(model, text, 0)
    if not model.reads_bos and model.tokenizer is not None and ids[:1] == (model.tokenizer.bos_id,):
        ids = ids[1:]
    ids = ids[: min(MAX_TOKENS, model.context or MAX_TOKENS)]
    if len(ids) < 3:
        raise ValueError(f"the text has {len(ids)} tokens but needs at least 3")
    attention = read_attention(model, ids, ())["self"]
    maps = tuple(
        _classify(layer, head, alpha_TT)
        for layer, alpha_HTT in enumerate(attention.layers)
        for head, alpha_TT in enumerate(alpha_HTT.double().cpu())
    )
    return AttentionMaps(attention.queries, attention.keys, maps)


def _classify(layer: int, head: int, alpha_TT: Tensor) -> AttentionMap:
    later_TT = alpha_TT[2:]  # the first two tokens have no other choice than the first or the previous token
    rows_T = torch.arange(2, len(alpha_TT))
    shares = (
        float(later_TT[:, 0].mean()),
        float(alpha_TT[rows_T, rows_T - 1].mean()),
        float(alpha_TT[rows_T, rows_T].mean()),
    )
    best = max(range(3), key=shares.__getitem__)
    if shares[best] >= MAIN_SHARE:
        return AttentionMap(layer, head, alpha_TT, TARGETS[best], shares[best])
    return AttentionMap(layer, head, alpha_TT, "many tokens", float(later_TT.max(dim=1).values.mean()))


def _map_to_source(
    model: StepModel, text: str | Sequence[int], source: str | Sequence[int] | None
) -> AttentionMaps:
    if source is None:
        raise ValueError("the model is an encoder–decoder: give the source of the text")
    (window,) = forced(model, [text], [source], cut=True)
    before, after = window.tokens[: window.first], window.tokens[window.first :][:MAX_TOKENS]
    attention = source_attention(model, before, after).get("source")
    if attention is None:
        raise ValueError(f"{type(model).__name__} does not provide attention weights over the source")
    weights_TS = attention.layers[0][0].double().cpu()
    head_map = AttentionMap(None, None, weights_TS, "the source", float(weights_TS.max(dim=1).values.mean()))
    return AttentionMaps(attention.queries, attention.keys, (head_map,))
