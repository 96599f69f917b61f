"""Where the weights of a model lie, in a form that one compiled step can walk through.

Weights stay where they are, in the parameters' own memory or in a file that is mapped: a table of whole
numbers holds, for every layer and every part of it, formats (`nn.stored.formats`), addresses, sizes and the
bias's address. A part may be stacked of up to three matrices with formats of their own (queries, keys and
values); END is the number of outputs down to the end of one, FUNCTION the address of what multiplies it. 0 is
an address where nothing is. Behind the layers' rows comes the model's own: its embedding, last norm and head.
Behind that one, where the model is an encoder, is a row for each layer of the decoder: what makes keys and
values there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from unspool.engine.int8_matmul import GROUP, INPUT_RECORD
from unspool.engine.packed_matmul import HALVES, MADE, compiled_product
from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import BF16, F16, F32, NUMBER_INT8, Format

# The parts of a layer, and of the model
ATTENTION_NORM, QKV, ATTENTION_OUT, ATTENTION_POST_NORM = 0, 1, 2, 3
FEED_FORWARD_NORM, UP, DOWN, FEED_FORWARD_POST_NORM = 4, 5, 6, 7
CROSS_NORM, CROSS_QUERY, CROSS_OUT, CROSS_POST_NORM = 8, 9, 10, 11
QUERY_NORM, KEY_NORM = 12, 13
BEHIND = {
    ATTENTION_NORM: ATTENTION_POST_NORM,
    CROSS_NORM: CROSS_POST_NORM,
    FEED_FORWARD_NORM: FEED_FORWARD_POST_NORM,
}
"""The norm before a branch → the one behind it."""
LAST_NORM, EMBED, HEAD, EMBED_NORM, RELATIVE = 0, 1, 2, 3, 4
SOURCE_KV = 0
PARTS = 14

# What is said of each: of up to three matrices that are stacked, one above another, and of all of them
FORMAT, WEIGHT, END, FUNCTION = 0, 1, 2, 3
PIECE, PIECES = 4, 3
OUTPUTS, INPUTS, BIAS = 12, 13, 14
FIELDS = 15


class Shape(NamedTuple):
    """Sizes and choices of a model, as numbers."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    inner_width: int
    vocab_size: int
    norm: int
    norm_eps: float
    post: bool
    """Sums are normalised, LN(x + f(x)); elsewhere what has a norm in the table is."""
    activation: int
    turned_width: int
    """How many numbers of a head are turned by its position, in layers that turn any."""
    attention_cap: float = 0.0
    """Scores are bent to stay below it; 0: they are not."""
    logit_cap: float = 0.0
    """The same for the head's scores."""
    embed_scale: float = 1.0
    crosses: bool = False
    """Layers look at a source between their own past and the feed-forward network."""
    keyless: bool = False
    """What a layer reads is its key, and queries are as wide (`nn.attention.keyless_attention`)."""

    @property
    def key_heads(self) -> int:
        """Heads of keys that a layer keeps."""
        return 1 if self.keyless else self.kv_heads

    @property
    def key_width(self) -> int:
        """Of each of them, and of a query."""
        return self.width if self.keyless else self.head_width


NORMS = {"rms": 0, "layer": 1}
ACTIVATIONS = {"swiglu": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "geglu": 4, "silu": 5}
RMS, LAYER = 0, 1
SWIGLU, RELU, GELU, GELU_TANH, GEGLU, SILU = 0, 1, 2, 3, 4, 5


# The weights of a model as a compiled step finds them: the table of `parts`, filled part by part.


class Weights:
    """The table of `parts`, filled part by part; it keeps the tensors whose addresses it holds."""

    def __init__(self, layers: int, readers: int = 0) -> None:
        self.table = np.zeros((layers + 1 + readers, PARTS, FIELDS), np.int64)
        self.size = 0
        """Weights that a row is multiplied with."""
        self._held: list[Tensor] = []

    def put(self, layer: int, part: int, weight: Tensor, bias: Tensor | None = None) -> None:
        """A matrix (outputs, inputs) or a norm's gain, with its bias, in float32."""
        rows, columns = weight.shape if weight.dim() == 2 else (1, len(weight))
        self._put(layer, part, [(F32, weight, rows)], columns, bias)

    def put_stored(
        self, layer: int, part: int, pieces: Sequence[StoredWeight], bias: Tensor | None = None
    ) -> None:
        """A matrix that is stacked of stored ones."""
        stacked = [_multiplied(piece) for piece in pieces]
        self._put(layer, part, stacked, pieces[0].shape[1], bias)

    def ready_words(self) -> int:
        """Numbers that a row of the widest product's inputs takes when it is ready for whole numbers."""
        formats = self.table[:, :, [at + FORMAT for at in range(0, PIECE * PIECES, PIECE)]]
        wanting = (formats == NUMBER_INT8).any(axis=-1)
        widest = int(self.table[:, :, INPUTS][wanting].max(initial=0))
        return -(-widest // GROUP) * INPUT_RECORD

    def _put(
        self,
        layer: int,
        part: int,
        stacked: Sequence[tuple[Format, Tensor, int]],
        inputs: int,
        bias: Tensor | None,
    ) -> None:
        row, end = self.table[layer, part], 0
        for at in range(0, PIECE * PIECES, PIECE):
            if at // PIECE < len(stacked):
                kind, memory, rows = stacked[at // PIECE]
                end += rows
                row[at + FORMAT], row[at + WEIGHT] = kind.number, self._address(memory)
                row[at + FUNCTION] = compiled_product(kind).address if kind in MADE else 0
            row[at + END] = end
        row[OUTPUTS], row[INPUTS] = end, inputs
        row[BIAS] = 0 if bias is None else self._address(bias)
        self.size += end * inputs

    def _address(self, tensor: Tensor) -> int:
        kept = tensor.detach()
        self._held.append(kept)
        return kept.data_ptr()


def _multiplied(weight: StoredWeight) -> tuple[Format, Tensor, int]:
    """Format, memory and rows of what a kernel multiplies in place of a stored weight."""
    rows, columns = weight.shape
    whole = weight.format in (F16, BF16) and columns % HALVES == 0
    if weight.format.block > 1 or whole:
        return weight.format, weight.packed, rows
    return F32, weight.restore(), rows
