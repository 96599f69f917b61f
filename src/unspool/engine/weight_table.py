"""The weight table: addresses, formats and sizes of a model's weights, as the compiled step reads them.

Weights stay in the parameters' memory or in a mapped file. A table of integers holds, for each layer and each
part of it, the format (`weight_formats`), address and sizes of its matrix and the address of its bias; an
address of 0 means that the part is missing. A part may be stacked from up to three matrices of different
formats (queries, keys and values): END is the number of outputs up to the end of each, FUNCTION the address
of its product. After the rows of the layers follows the model's: embedding, final norm and head. An encoder
has one more row for each layer of the decoder, with the projection to its keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import types
from numpy.typing import NDArray
from torch import Tensor

from unspool.engine import interleaved_matmul, packed_matmul
from unspool.engine.compile_cache import CompileNotice
from unspool.engine.interleaved_formats import LAYOUTS
from unspool.engine.interleaved_matmul import INPUT_RECORD, count_groups
from unspool.engine.kernel import c_callback
from unspool.engine.packed_matmul import HALF_BLOCK, UNPACK
from unspool.engine.stored_weights import StoredWeight
from unspool.engine.weight_formats import F32, FIRST_INTERLEAVED, WeightFormat

# The parts of a layer, and of the model
ATTENTION_NORM, QKV, ATTENTION_OUT, ATTENTION_POST_NORM = 0, 1, 2, 3
FEED_FORWARD_NORM, UP, DOWN, FEED_FORWARD_POST_NORM = 4, 5, 6, 7
CROSS_NORM, CROSS_QUERY, CROSS_OUT, CROSS_POST_NORM = 8, 9, 10, 11
QUERY_NORM, KEY_NORM = 12, 13
POST_NORM_OF = {
    ATTENTION_NORM: ATTENTION_POST_NORM,
    CROSS_NORM: CROSS_POST_NORM,
    FEED_FORWARD_NORM: FEED_FORWARD_POST_NORM,
}
"""The norm before a branch → the norm after it."""
LAST_NORM, EMBED, HEAD, EMBED_NORM, RELATIVE = 0, 1, 2, 3, 4
SOURCE_KV = 0
PARTS = 14

# Fields of a part: four for each of up to three stacked matrices, and three for all of them
FORMAT, WEIGHT, END, FUNCTION = 0, 1, 2, 3
PIECE, PIECES = 4, 3
OUTPUTS, INPUTS, BIAS = 12, 13, 14
FIELDS = 15


class ModelShape(NamedTuple):
    """Sizes and options of a model, as numbers."""

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
    """Post-norm: LN(x + f(x))."""
    activation: int
    rotary_width: int
    """How many numbers of a head are rotated, in layers with rotary positions."""
    attention_cap: float = 0.0
    """Soft cap of attention scores; 0: none."""
    logit_cap: float = 0.0
    """Soft cap of the head's logits; 0: none."""
    embed_scale: float = 1.0
    crosses: bool = False
    """Layers have cross-attention."""
    keyless: bool = False
    """Keyless attention: a layer's input is its key (`nn.attention`)."""
    half_cache: bool = False
    """The KV cache is float16."""

    @property
    def key_heads(self) -> int:
        """Key heads in the KV cache."""
        return 1 if self.keyless else self.kv_heads

    @property
    def key_width(self) -> int:
        """Width of a key and of a query."""
        return self.width if self.keyless else self.head_width


NORMS = {"rms": 0, "layer": 1}
ACTIVATIONS = {"swiglu": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "geglu": 4, "silu": 5}
RMS, LAYER = 0, 1
SWIGLU, RELU, GELU, GELU_TANH, GEGLU, SILU = 0, 1, 2, 3, 4, 5


class WeightTable:
    """The table of a model, filled part by part; it keeps the tensors alive whose addresses it holds."""

    def __init__(self, layers: int, readers: int = 0) -> None:
        self.table = np.zeros((layers + 1 + readers, PARTS, FIELDS), np.int64)
        self.size = 0
        """Multiplications per row."""
        self._held: list[Tensor] = []
        self._stacked: list[tuple[Tensor, list[Tensor]]] = []

    def put(self, layer: int, part: int, weight: Tensor, bias: Tensor | None = None) -> None:
        """Enter a float32 matrix (outputs, inputs) or the gain of a norm, and its bias."""
        rows, columns = weight.shape if weight.dim() == 2 else (1, len(weight))
        self._put(layer, part, [(F32, weight, rows)], columns, bias)

    def put_stored(
        self, layer: int, part: int, pieces: Sequence[StoredWeight], bias: Tensor | None = None
    ) -> None:
        """Enter a matrix that is stacked from stored ones."""
        stacked = [_kernel_weight(piece) for piece in pieces]
        self._put(layer, part, stacked, pieces[0].shape[1], bias)

    def stacked_bias(self, biases: Sequence[Tensor]) -> Tensor:
        """The biases of stacked matrices in one vector, a copy."""
        detached = [bias.detach() for bias in biases]
        self._stacked.append((torch.cat(detached), detached))
        return self._stacked[-1][0]

    def copy_biases(self) -> None:
        """Copy the stacked biases again: their values may have changed since."""
        for stacked, biases in self._stacked:
            torch.cat(biases, out=stacked)

    def has_stored(self) -> bool:
        """True if some matrix is not float32."""
        return bool((self._formats() != F32.number).any())

    def _formats(self) -> NDArray[np.int64]:
        """(layers, parts, PIECES): the formats of all stacked matrices."""
        return self.table[:, :, [at + FORMAT for at in range(0, PIECE * PIECES, PIECE)]]

    def prepared_words(self) -> int:
        """Words of a prepared row of the widest inputs of an interleaved matrix."""
        is_interleaved = (self._formats() >= FIRST_INTERLEAVED).any(axis=-1)
        widest = int(self.table[:, :, INPUTS][is_interleaved].max(initial=0))
        return int(count_groups.py_func(widest)) * INPUT_RECORD  # type: ignore[attr-defined]

    def _put(
        self,
        layer: int,
        part: int,
        stacked: Sequence[tuple[WeightFormat, Tensor, int]],
        inputs: int,
        bias: Tensor | None,
    ) -> None:
        row, end = self.table[layer, part], 0
        for at in range(0, PIECE * PIECES, PIECE):
            if at // PIECE < len(stacked):
                kind, memory, rows = stacked[at // PIECE]
                end += rows
                row[at + FORMAT], row[at + WEIGHT] = kind.number, self._address(memory)
                row[at + FUNCTION] = product_address(kind)
            row[at + END] = end
        row[OUTPUTS], row[INPUTS] = end, inputs
        row[BIAS] = 0 if bias is None else self._address(bias)
        self.size += end * inputs

    def _address(self, tensor: Tensor) -> int:
        detached = tensor.detach()
        self._held.append(detached)
        return detached.data_ptr()


def _kernel_weight(weight: StoredWeight) -> tuple[WeightFormat, Tensor, int]:
    """The format, memory and rows that a kernel multiplies: the stored ones, or float32 if it cannot."""
    rows, columns = weight.shape
    if weight.format in LAYOUTS:
        return weight.format, weight.interleaved, rows
    if weight.format in UNPACK and columns % HALF_BLOCK == 0:
        return weight.format, weight.packed, rows
    return F32, weight.restore(), rows


PRODUCT_SIGNATURE = types.void(*[types.int64] * 8)
"""The address of w, inputs; the address of x, rows; the address of y, outputs; first and last output."""


@cache
def _compiled_product(kind: WeightFormat) -> Any:
    function = (interleaved_matmul if kind in LAYOUTS else packed_matmul).product_of(kind)
    function.__qualname__ = kind.name  # the disk cache tells generated functions apart by their names
    with CompileNotice(f"matrix products with {kind.name} weights"):
        return c_callback(PRODUCT_SIGNATURE, function)


def product_address(kind: WeightFormat) -> int:
    """The address of a format's compiled product; 0 for float32, which is part of the step."""
    return int(_compiled_product(kind).address) if kind in LAYOUTS or kind in UNPACK else 0
