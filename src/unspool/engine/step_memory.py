"""Arguments of the compiled Transformer step: its tokens, KV cache, workspace and outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
NO_FLOATS: Floats = np.empty(0, np.float32)
NO_INTS: Ints = np.empty(0, np.int64)


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


class PositionArrays(NamedTuple):
    """Tables of positions, each empty if a model does not use it."""

    cos: Floats = NO_FLOATS
    sin: Floats = NO_FLOATS
    """(tables · positions · rotary_width/2): rotary angles, one table after another."""
    added: Floats = NO_FLOATS
    """(positions · D): position embeddings; of learned positions, the parameter's memory."""
    begins: Ints = NO_INTS
    """(layers): the first row of a layer's rotary table; −1 if it does not rotate."""
    windows: Ints = NO_INTS
    """(layers): the attention window: how many tokens, itself included, a token attends to."""
    buckets: Ints = NO_INTS
    """(2 · positions − 1): the bucket of each relative position, 0 in the middle."""


class CacheAndPositions(NamedTuple):
    """The KV cache of the sequences, and tables of positions."""

    kv: Any
    """All blocks (`attention`)."""
    starts: Any
    """(sequences, blocks): the offset of each block in kv."""
    tables: PositionArrays


class SourceKV(NamedTuple):
    """Keys and values of sources: an encoder writes them, a decoder reads them."""

    kv: Any
    """All blocks (`attention`)."""
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
    """Inputs of a product, prepared for quantised weights (`interleaved_matmul`); empty if there are none."""


class StepOutputs(NamedTuple):
    """Results for N tokens; kernels see flat arrays."""

    hidden: Any
    """(N, D): input of the head."""
    early: Any
    """(N, depths, D): input of the head at early exits."""
    logp: Any
    """(wanted, V)."""
    log_norm: Any
    """(wanted): logit = log p + log_norm."""
    source_attention: Any
    """(N, S): the last layer's attention to the source, mean over heads; S is a multiple of WIDTH, or 0."""
    depths: Any
    """Depths of early exits: 0 before the first layer, 1 after it …"""
