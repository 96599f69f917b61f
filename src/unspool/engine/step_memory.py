"""Arguments of the compiled Transformer step: its tokens, KV cache, workspace and outputs."""

from __future__ import annotations

from typing import Any, NamedTuple


class StepTokens(NamedTuple):
    """N tokens that one step reads."""

    tokens: Any
    """(N); empty if only the head runs, on `StepOutputs.hidden`."""
    sequences: Any
    """(N): the sequence of each token."""
    positions: Any
    """(N): its position in the sequence."""
    attended: Any
    """(N): how many tokens of the sequence it attends to: those up to itself, or all."""
    wanted: Any
    """Rows whose log-probabilities are wanted."""


class CacheAndPositions(NamedTuple):
    """The KV cache of the sequences, and tables of positions."""

    kv: Any
    """All blocks, usually (layers, K, 2, BLOCK, I) each (`attention`)."""
    starts: Any
    """(sequences, blocks): the offset of each block in kv."""
    cos: Any
    sin: Any
    """(tables · positions · rotary_width/2): rotary angles, one table after another."""
    added: Any
    """(positions · D): position embeddings; empty if there are none."""
    tables: Any
    """(layers): the first row of a layer's rotary table; −1 if it does not rotate."""
    windows: Any
    """(layers): the attention window: how many tokens, itself included, a token attends to."""
    buckets: Any
    """(2 · positions − 1): the bucket of each relative position, 0 in the middle; empty without them."""


class SourceKV(NamedTuple):
    """Keys and values of sources: an encoder writes them, a decoder reads them."""

    kv: Any
    """All blocks, (decoder layers, K, 2, BLOCK, I) each."""
    starts: Any
    """(sequences, blocks): the offset of each block in kv."""
    lengths: Any
    """(sequences): tokens of each source."""


class Workspace(NamedTuple):
    """Intermediate results between two phases, contiguous for each of N rows."""

    x: Any
    h: Any
    y: Any
    qkv: Any
    mixed: Any
    up: Any
    active: Any
    source_scores: Any
    """Same shape as `StepOutputs.source_attention`."""
    prepared: Any
    """Inputs of a product, prepared for INT8 weights (`int8_matmul`); empty if there are none."""


class StepOutputs(NamedTuple):
    """Results of a step."""

    hidden: Any
    """(N, D): input of the head."""
    depths: Any
    """Depths of early exits: 0 before the first layer, 1 after it …"""
    early: Any
    """(N, depths, D): input of the head at these depths."""
    logp: Any
    """(wanted, V)."""
    log_norm: Any
    """(wanted)."""
    source_attention: Any
    """(N, S): the last layer's attention to the source, mean over heads; S is a multiple of WIDTH, or 0."""
