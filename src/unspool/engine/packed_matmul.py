"""Matrix products with float16 and bfloat16 weights.

    y_no = Σ_i w_oi · x_ni,   w_oi converted to float32 on the fly

For one row of x, WIDTH numbers are multiplied after the other. For several rows, a few rows of w are
converted into a tile that stays in the cache, and `dense_matmul` multiplies the tile. The order of every sum
is the same both ways.

Each format is compiled separately when a model first needs it, and called by its address (`weight_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unspool.engine import dense_matmul
from unspool.engine.dense_matmul import GROUP, Outputs
from unspool.engine.kernel import (
    bytes_at,
    call_address,
    floats_at,
    inline_kernel,
    kernel,
    stack_alloc,
)
from unspool.engine.memory import MAX_STACK_FLOATS
from unspool.engine.simd import WIDTH, fma, load, splat, store, vadd, vsum
from unspool.engine.simd_bytes import bfloat16_to_float32, float16_to_float32, load_uint16
from unspool.engine.weight_formats import BF16, F16, WeightFormat


@inline_kernel
def unpack_f16(w: Any, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return float16_to_float32(load_uint16(w, 2 * i))


@inline_kernel
def unpack_bf16(w: Any, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return bfloat16_to_float32(load_uint16(w, 2 * i))


TILE_FLOATS = 8192
"""Unpacked numbers in a cached tile, about."""
HALF_BLOCK = 32
"""The number of inputs is a multiple of this."""
ZERO = np.float32(0)


@kernel
def tile_rows(inputs: int) -> int:
    """Unpacked rows of w in a tile."""
    return max(1, min(64, TILE_FLOATS // inputs // 2 * 2), min(4, MAX_STACK_FLOATS // inputs))


UNPACK: dict[WeightFormat, Any] = {F16: unpack_f16, BF16: unpack_bf16}
"""Format → its unpacking kernel."""


def product_of(kind: WeightFormat) -> Callable[..., None]:
    """The function of a format that `product` calls by its address."""
    unpack = UNPACK[kind]

    def multiply_row(
        address: int, inputs: int, x_at: int, _: int, y_at: int, __: int, first: int, last: int
    ) -> None:
        """y[first : last] of one row of x, or, if x_at is 0, row `first` of w unpacked."""
        w = bytes_at(address, last * inputs * 2)
        if x_at == 0:
            y = floats_at(y_at, inputs)
            for i in range(0, inputs, WIDTH):
                store(y, i, unpack(w, first * inputs + i))
            return
        x, y = floats_at(x_at, inputs), floats_at(y_at, last)
        for o in range(first, last):
            A = splat(ZERO)
            for start in range(0, inputs, GROUP):
                a = splat(ZERO)
                for i in range(start, min(start + GROUP, inputs), WIDTH):
                    a = fma(unpack(w, o * inputs + i), load(x, i), a)
                A = vadd(A, a)
            y[o] = vsum(A)

    return multiply_row


@kernel
def product(
    function: int, w: int, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int
) -> None:
    """The product with w at an address, in the format of the compiled `function`."""
    if rows == 1:
        y_at = out.y.ctypes.data + 4 * out.shift
        call_address(function, w, inputs, x.ctypes.data, rows, y_at, out.width, first, last)
        return
    size = tile_rows(inputs)
    tile = floats_at(stack_alloc(size * inputs), size * inputs)
    for start in range(first, last, size):
        stop = min(start + size, last)
        for o in range(start, stop):
            call_address(function, w, inputs, 0, 1, tile.ctypes.data + 4 * (o - start) * inputs, 0, o, o + 1)
        dense_matmul.product(
            tile, inputs, x, rows, Outputs(out.y, out.width, out.shift + start), 0, stop - start
        )
