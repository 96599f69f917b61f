"""Compiled engines of TransformerLM and TransformerSeq2Seq, on the memory of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from unspool.engine import weight_table
from unspool.engine.attention import MAX_HALF_WIDTH
from unspool.engine.engine_choice import logit_cap, softmax_head
from unspool.engine.stored_softmax import TiedStoredSoftmax
from unspool.engine.stored_weights import StoredMatrix, StoredWeight
from unspool.engine.transformer_engine import EncoderEngine, PositionTables, TransformerEngine
from unspool.engine.weight_formats import F32
from unspool.engine.weight_table import ModelShape, WeightTable
from unspool.nn.norms import LayerNorm, RMSNorm

if TYPE_CHECKING:
    from unspool.models.transformer_lm import TransformerLM
    from unspool.models.transformer_seq2seq import TransformerSeq2Seq
    from unspool.models.transformer_shape import TransformerShape

NORMS = (LayerNorm, RMSNorm)

BLOCK_MATRICES = {
    "attention.out": weight_table.ATTENTION_OUT,
    "cross_attention.query": weight_table.CROSS_QUERY,
    "cross_attention.out": weight_table.CROSS_OUT,
    "feed_forward.up": weight_table.UP,
    "feed_forward.down": weight_table.DOWN,
}
BLOCK_NORMS = {
    "attention_norm": weight_table.ATTENTION_NORM,
    "attention_post_norm": weight_table.ATTENTION_POST_NORM,
    "attention.norm.query": weight_table.QUERY_NORM,
    "attention.norm.key": weight_table.KEY_NORM,
    "cross_attention_norm": weight_table.CROSS_NORM,
    "cross_attention_post_norm": weight_table.CROSS_POST_NORM,
    "feed_forward_norm": weight_table.FEED_FORWARD_NORM,
    "feed_forward_post_norm": weight_table.FEED_FORWARD_POST_NORM,
}
"""Modules of a block → their parts of the weight table; a block may lack some."""


def compiled_language_model(model: TransformerLM) -> TransformerEngine:
    """The engine of a language model."""
    engine = _engine(model, PositionTables(model._rotaries, model.positions, model._windows))
    engine.shape = engine.shape._replace(embed_scale=float(model.config.embed_scale))
    return engine


def compiled_decoder(model: TransformerSeq2Seq) -> TransformerEngine:
    """The engine of a decoder with cross-attention."""
    layers = len(model.blocks)
    engine = _engine(
        model, PositionTables([model._rotary] * layers, model.positions, relative=model.relative)
    )
    engine.shape = engine.shape._replace(embed_scale=model.scale, crosses=True)
    _put_norm(engine.weights, layers, weight_table.EMBED_NORM, model.embed_norm)
    if model.relative is not None:
        engine.weights.put(layers, weight_table.RELATIVE, model.relative.weight)
    return engine


def _engine(model: TransformerLM | TransformerSeq2Seq, tables: PositionTables) -> TransformerEngine:
    layers = len(model.blocks)
    weights = WeightTable(layers)
    for layer, block in enumerate(model.blocks):
        _put_block(weights, layer, block, model.config)
    _put_norm(weights, layers, weight_table.LAST_NORM, model.norm)
    _put_matrix(weights, layers, weight_table.EMBED, model.embed)
    words = softmax_head(model)
    if words is not None:
        _put_matrix(weights, layers, weight_table.HEAD, words)
    shape = _shape(model.config, layers, model.vocab_size)
    shape = shape._replace(logit_cap=logit_cap(model), half_cache=_has_half_cache(model, shape, weights))
    return TransformerEngine(shape, weights, tables)


def _has_half_cache(
    model: TransformerLM | TransformerSeq2Seq, shape: ModelShape, weights: WeightTable
) -> bool:
    """True if the KV cache is float16: as set, else if some weights are stored."""
    if shape.key_width + shape.head_width > MAX_HALF_WIDTH:
        if model.kv_cache == "float16":
            raise ValueError(
                f"kv_cache='float16' supports keys and values of {MAX_HALF_WIDTH} numbers together, not "
                f"{shape.key_width + shape.head_width}: choose float32 or None"
            )
        return False
    return model.kv_cache == "float16" or (model.kv_cache is None and weights.has_stored())


def compiled_encoder(model: TransformerSeq2Seq) -> EncoderEngine:
    """The engine of an encoder, which computes the decoder's keys and values."""
    encoder, embed = model.encoder, model.source_embed or model.embed
    layers = len(encoder.blocks)
    weights = WeightTable(layers, readers=len(model.blocks))
    for layer, block in enumerate(encoder.blocks):
        _put_block(weights, layer, block, model.config)
    _put_norm(weights, layers, weight_table.LAST_NORM, encoder.norm)
    _put_matrix(weights, layers, weight_table.EMBED, embed)
    _put_norm(weights, layers, weight_table.EMBED_NORM, encoder.embed_norm)
    for reader, block in enumerate(model.blocks):
        _put_matrix(weights, layers + 1 + reader, weight_table.SOURCE_KV, block.cross_attention.kv)
    if encoder.relative is not None:
        weights.put(layers, weight_table.RELATIVE, encoder.relative.weight)
    shape = _shape(model.config, layers, embed.num_embeddings)._replace(embed_scale=encoder.scale)
    tables = PositionTables([encoder._rotary] * layers, encoder.positions, relative=encoder.relative)
    return EncoderEngine(TransformerEngine(shape, weights, tables))


def _shape(c: TransformerShape, layers: int, vocab_size: int) -> ModelShape:
    return weight_table.ModelShape(
        c.width,
        layers,
        c.heads,
        c.key_value_heads,
        c.each_width,
        c.inner_width,
        vocab_size,
        weight_table.NORMS[c.norm],
        float(c.norm_eps),
        c.norm_place == "post",
        weight_table.ACTIVATIONS[c.activation],
        c.each_width if c.rotary_width is None else c.rotary_width,
        float(c.attention_cap or 0),
        keyless=c.attention == "keyless",
    )


def _put_block(weights: WeightTable, layer: int, block: Any, config: TransformerShape) -> None:
    modules = dict(block.named_modules())
    for path, part in BLOCK_MATRICES.items():
        if path in modules:
            _put_matrix(weights, layer, part, modules[path])
    _put_stacked(weights, layer, weight_table.QKV, block.attention.projections)
    for path, part in BLOCK_NORMS.items():
        if config.norm_place == "after":  # the only norm of a branch is after it
            part = weight_table.POST_NORM_OF.get(part, part)
        _put_norm(weights, layer, part, modules.get(path))


def _put_matrix(weights: WeightTable, layer: int, part: int, module: Any) -> None:
    bias = None if isinstance(module, nn.Embedding) else module.bias
    if isinstance(module, StoredMatrix | TiedStoredSoftmax):
        weights.put_stored(layer, part, module.pieces, bias)
    else:
        weights.put(layer, part, module.weight, bias)


def _put_stacked(weights: WeightTable, layer: int, part: int, modules: Sequence[Any]) -> None:
    """Several matrices as one stacked part, without copies; biases are concatenated."""
    if len(modules) == 1:
        _put_matrix(weights, layer, part, modules[0])
        return
    pieces = [piece for module in modules for piece in _pieces(module)]
    biases = [module.bias for module in modules if module.bias is not None]
    weights.put_stored(layer, part, pieces, weights.stacked_bias(biases) if biases else None)


def _pieces(module: Any) -> tuple[StoredWeight, ...]:
    if isinstance(module, StoredMatrix):
        return module.pieces
    weight = module.weight.detach()
    return (StoredWeight(F32, weight.view(torch.uint8), tuple(weight.shape)),)


def _put_norm(weights: WeightTable, layer: int, part: int, norm: nn.Module | None) -> None:
    if isinstance(norm, NORMS):  # not Identity or None
        weights.put(layer, part, norm.weight, norm.bias)
