"""The compiled steps of our Transformers, on the memory of their own parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from unspool.engine.compiled_state import CompiledState
from unspool.engine.engine_choice import logit_cap, plain_head, plain_words
from unspool.engine.stored_softmax import TiedStoredSoftmax
from unspool.engine.stored_weights import StoredMatrix, StoredWeight
from unspool.engine.weight_formats import F32
from unspool.lazy import gc_paused
from unspool.nn.norms import LayerNorm, RMSNorm
from unspool.nn.transformer import CrossBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unspool.engine.transformer_engine import Encoder, Engine, Tables
    from unspool.engine.weight_table import Shape, Weights
    from unspool.models.transformer_lm import TransformerLM
    from unspool.models.transformer_seq2seq import TransformerSeq2Seq
    from unspool.models.transformer_shape import TransformerShape

NORMED = (LayerNorm, RMSNorm)


def reading_state(model: TransformerLM, prompts: Sequence[Sequence[int]]) -> CompiledState:
    """A state for these prompts, which are still to be read."""
    from unspool.engine.kv_cache import BlockPool

    engine = compiled_language_model(model)
    pool = BlockPool.empty(engine.shape, len(prompts))
    head = None if plain_head(model) else model.head
    return CompiledState(engine, pool, head, [len(prompt) for prompt in prompts])


def translating_state(model: TransformerSeq2Seq, sources: Sequence[Sequence[int]]) -> CompiledState:
    """A state for translations of these sources, which are read."""
    from unspool.engine.kv_cache import BlockPool

    engine = compiled_decoder(model)
    pool = BlockPool.empty(engine.shape, len(sources))
    head = None if plain_head(model) else model.head
    return CompiledState(engine, pool, head, None, compiled_encoder(model).read(sources, engine.shape))


@gc_paused()  # numba is imported, and kernels are read from the disk, when the first one is made
def compiled_language_model(model: TransformerLM) -> Engine:
    """The step of a language model."""
    from unspool.engine.transformer_engine import Tables

    engine = _engine(model, Tables(model._rotaries, model.positions, model._windows))
    engine.shape = engine.shape._replace(embed_scale=float(model.config.embed_scale))
    return engine


@gc_paused()
def compiled_decoder(model: TransformerSeq2Seq) -> Engine:
    """The step of a decoder, whose layers look at a source."""
    from unspool.engine import weight_table
    from unspool.engine.transformer_engine import Tables

    layers = len(model.blocks)
    engine = _engine(model, Tables([model._rotary] * layers, model.positions, relative=model.relative))
    engine.shape = engine.shape._replace(embed_scale=model.scale, crosses=True)
    _put_norm(engine.weights, layers, weight_table.EMBED_NORM, model.embed_norm)
    if model.relative is not None:
        engine.weights.put(layers, weight_table.RELATIVE, model.relative.weight)
    return engine


def _engine(model: TransformerLM | TransformerSeq2Seq, tables: Tables) -> Engine:
    from unspool.engine import weight_table
    from unspool.engine.transformer_engine import Engine
    from unspool.engine.weight_table import Weights

    layers = len(model.blocks)
    weights = Weights(layers)
    for layer, block in enumerate(model.blocks):
        _put_block(weights, layer, block, model.config)
    _put_norm(weights, layers, weight_table.LAST_NORM, model.norm)
    _put_matrix(weights, layers, weight_table.EMBED, model.embed)
    words = plain_words(model)
    if words is not None:
        _put_matrix(weights, layers, weight_table.HEAD, words)
    shape = _shape(model.config, layers, model.vocab_size)
    return Engine(shape._replace(logit_cap=logit_cap(model)), weights, tables)


def compiled_encoder(model: TransformerSeq2Seq) -> Encoder:
    """One pass over sources, down to the keys and values that the decoder looks at."""
    from unspool.engine import weight_table
    from unspool.engine.transformer_engine import Encoder, Engine, Tables
    from unspool.engine.weight_table import Weights

    encoder, embed = model.encoder, model.source_embed or model.embed
    layers = len(encoder.blocks)
    weights = Weights(layers, readers=len(model.blocks))
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
    tables = Tables([encoder._rotary] * layers, encoder.positions, relative=encoder.relative)
    return Encoder(Engine(shape, weights, tables))


def _shape(c: TransformerShape, layers: int, vocab_size: int) -> Shape:
    from unspool.engine import weight_table

    return weight_table.Shape(
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


def _put_block(weights: Weights, layer: int, block: Any, config: TransformerShape) -> None:
    from unspool.engine import weight_table

    matrices = {
        weight_table.ATTENTION_OUT: block.attention.out,
        weight_table.UP: block.feed_forward.up,
        weight_table.DOWN: block.feed_forward.down,
    }
    norms = {
        weight_table.ATTENTION_NORM: block.attention_norm,
        weight_table.ATTENTION_POST_NORM: block.attention_post_norm,
        weight_table.FEED_FORWARD_NORM: block.feed_forward_norm,
        weight_table.FEED_FORWARD_POST_NORM: block.feed_forward_post_norm,
    }
    if block.attention.norm is not None:
        norms |= {
            weight_table.QUERY_NORM: block.attention.norm.query,
            weight_table.KEY_NORM: block.attention.norm.key,
        }
    if isinstance(block, CrossBlock):
        matrices |= {
            weight_table.CROSS_QUERY: block.cross_attention.query,
            weight_table.CROSS_OUT: block.cross_attention.out,
        }
        norms |= {
            weight_table.CROSS_NORM: block.cross_attention_norm,
            weight_table.CROSS_POST_NORM: block.cross_attention_post_norm,
        }
    for part, linear in matrices.items():
        _put_matrix(weights, layer, part, linear)
    _put_stacked(weights, layer, weight_table.QKV, block.attention.projections)
    if config.norm_place == "after":  # a branch's only norm is the one behind it
        norms = {
            weight_table.BEHIND.get(part, part): norm for part, norm in norms.items() if type(norm) in NORMED
        }
    for part, norm in norms.items():
        _put_norm(weights, layer, part, norm)


def _put_matrix(weights: Weights, layer: int, part: int, module: Any) -> None:
    bias = None if isinstance(module, nn.Embedding) else module.bias
    if isinstance(module, StoredMatrix | TiedStoredSoftmax):
        weights.put_stored(layer, part, module.pieces, bias)
    else:
        weights.put(layer, part, module.weight, bias)


def _put_stacked(weights: Weights, layer: int, part: int, modules: Sequence[Any]) -> None:
    """Several matrices as one. Each stays where it is; their biases are copied, if there are two."""
    if len(modules) == 1:
        _put_matrix(weights, layer, part, modules[0])
        return
    pieces = [piece for module in modules for piece in _pieces(module)]
    biases = [module.bias for module in modules if module.bias is not None]
    weights.put_stored(layer, part, pieces, torch.cat(biases) if biases else None)


def _pieces(module: Any) -> tuple[StoredWeight, ...]:
    if isinstance(module, StoredMatrix):
        return module.pieces
    weight = module.weight.detach()
    return (StoredWeight(F32, weight.view(torch.uint8), tuple(weight.shape)),)


def _put_norm(weights: Weights, layer: int, part: int, norm: nn.Module | None) -> None:
    if isinstance(norm, NORMED):  # and no Identity or None, where a model has none
        weights.put(layer, part, norm.weight, norm.bias)
