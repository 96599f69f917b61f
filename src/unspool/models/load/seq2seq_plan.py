"""What the tensors of a Transformer encoder–decoder are made of, under the names that a family gives them.

    ours                            BART
    encoder.blocks.0.attention.qkv  model.encoder.layers.0.self_attn.{q,k,v}_proj, one above another
    blocks.0.cross_attention.kv     model.decoder.layers.0.encoder_attn.{k,v}_proj

A dialect (`dialect.py`) names the modules of both sides, "{}" stands for the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unspool.heads import SoftmaxHeadConfig
from unspool.models.load.dialect import Dialect, ModulePart, Target, TensorPart, block_parts, module_targets

if TYPE_CHECKING:
    from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig


def seq2seq_plan(config: TransformerSeq2SeqConfig, dialect: Dialect) -> Iterator[Target]:
    """Our tensors one by one, each with its pieces; a layer that is missing is found as soon as it is due."""
    for module, part in _outside(config).items():
        adjusted = dialect.adjusted.get(module, ())
        yield from module_targets(module, dialect.names[module], part, dialect, adjusted, biased=True)
    if isinstance(config.head, SoftmaxHeadConfig) and config.head.bias:
        words = (config.vocab_size,)
        (bias,) = dialect.names["head.bias"]
        yield Target("head.bias", words, (TensorPart(bias, words, in_row=True),))
    inside = block_parts(config)
    yield from _blocks("encoder.blocks.{}.", config.encoder_layers, inside, dialect)
    yield from _blocks("blocks.{}.", config.decoder_layers, inside | _cross_parts(config), dialect)


def _blocks(side: str, layers: int, inside: dict[str, ModulePart], dialect: Dialect) -> Iterator[Target]:
    for layer in range(layers):
        for module, part in inside.items():
            template = side + module
            sources = tuple(source.format(layer) for source in dialect.names[template])
            adjusted = dialect.adjusted.get(template, ())
            yield from module_targets(template.format(layer), sources, part, dialect, adjusted, biased=True)


def _outside(c: TransformerSeq2SeqConfig) -> dict[str, ModulePart]:
    words = ModulePart((c.vocab_size,), c.width, matrix=True)
    norm = ModulePart((c.width,), None, c.norm == "layer")
    parts = {"embed": words}
    for side in ("encoder.", ""):
        if c.positions == "learned" and c.context is not None:
            parts[f"{side}positions"] = ModulePart((c.context,), c.width)
        if c.positions == "relative":
            parts[f"{side}relative"] = ModulePart((c.relative_buckets,), c.heads)
        if c.embed_norm:
            parts[f"{side}embed_norm"] = norm
        if c.norm_place != "post":
            parts[f"{side}norm"] = norm
    if not c.tied:
        parts["head"] = words
    return parts


def _cross_parts(c: TransformerSeq2SeqConfig) -> dict[str, ModulePart]:
    """What a block of the decoder has for its source."""
    queries, keys, biased = c.heads * c.each_width, c.key_value_heads * c.each_width, c.bias or c.qkv_bias
    return {
        "cross_attention_norm": ModulePart((c.width,), None, c.norm == "layer"),
        "cross_attention.query": ModulePart((queries,), c.width, biased, True),
        "cross_attention.kv": ModulePart((keys, keys), c.width, biased, True),
        "cross_attention.out": ModulePart((c.width,), queries, c.bias, True),
    }
