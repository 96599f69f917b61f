"""Matrix products with packed weights: ggml's quantised formats, float16 and bfloat16.

    y_no = Σ_i w_oi · x_ni,   w_oi unpacked from its block on the fly

A format defines `unpack_…(w, at, i)`: WIDTH numbers, from number i on, of the block at byte `at`. For one row
of x they are multiplied one after another. For several rows, a few rows of w are unpacked into a tile that
stays in the cache, and `dense_matmul` multiplies the tile. The order of every sum is the same both ways.

Each format (`weight_formats`) is compiled separately when a model first needs it, and called by its address.

Gerganov et al., ggml-common.h and ggml-quants.c (papers.bib: gerganov2023ggml).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types

from unspool.engine import dense_matmul
from unspool.engine.compile_cache import CompileNotice
from unspool.engine.dense_matmul import GROUP, Outputs
from unspool.engine.kernel import (
    bytes_at,
    c_callback,
    call_address,
    floats_at,
    inline_kernel,
    kernel,
    stack_alloc,
)
from unspool.engine.memory import MAX_STACK_FLOATS
from unspool.engine.simd import WIDTH, fma, load, splat, store, vadd, vmul, vsum
from unspool.engine.simd_bytes import (
    bfloat16_to_float32,
    float16_to_float32,
    int_to_float,
    join_nibble,
    load_bytes,
    load_float16,
    load_signed_bytes,
    load_uint16,
    shift_and_mask,
)
from unspool.engine.weight_formats import BF16, F16, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0, WeightFormat

LOW_NIBBLE, TWO_BITS, SIX_BITS = 15, 3, 63


@inline_kernel
def unpack_q8_0(w: Any, at: int, i: int) -> Any:
    """d · q."""
    return vmul(int_to_float(load_signed_bytes(w, at + 2 + i)), splat(load_float16(w, at)))


@inline_kernel
def unpack_q4_0(w: Any, at: int, i: int) -> Any:
    """d · q − 8 d, whose second term is exact."""
    q = int_to_float(shift_and_mask(load_bytes(w, at + 2 + i % 16), i // 16 * 4, LOW_NIBBLE))
    d = load_float16(w, at)
    return fma(q, splat(d), splat(np.float32(-8) * d))


@inline_kernel
def unpack_q4_1(w: Any, at: int, i: int) -> Any:
    """d · q + m."""
    q = int_to_float(shift_and_mask(load_bytes(w, at + 4 + i % 16), i // 16 * 4, LOW_NIBBLE))
    return fma(q, splat(load_float16(w, at)), splat(load_float16(w, at + 2)))


@inline_kernel
def _scale_and_shift(w: Any, at: int, group: int) -> Any:
    """d · s and dmin · m of one of the eight groups of a block of Q4_K or Q5_K."""
    s0 = at + 4
    if group < 4:
        s, m = w[s0 + group] & SIX_BITS, w[s0 + 4 + group] & SIX_BITS
    else:
        last = w[s0 + 4 + group]
        s = (last & LOW_NIBBLE) | ((w[s0 + group - 4] >> 6) << 4)
        m = (last >> 4) | ((w[s0 + group] >> 6) << 4)
    return load_float16(w, at) * np.float32(s), load_float16(w, at + 2) * np.float32(m)


@inline_kernel
def unpack_q4_k(w: Any, at: int, i: int) -> Any:
    """(d·s) q − dmin·m; 64 numbers are 32 bytes: their low nibbles, then their high ones."""
    scale, shift = _scale_and_shift(w, at, i // 32)
    q = shift_and_mask(load_bytes(w, at + 16 + i // 64 * 32 + i % 32), i // 32 % 2 * 4, LOW_NIBBLE)
    return fma(int_to_float(q), splat(scale), splat(-shift))


@inline_kernel
def unpack_q5_k(w: Any, at: int, i: int) -> Any:
    """Like Q4_K; the fifth bits of group g are the g-th bits of 32 bytes."""
    scale, shift = _scale_and_shift(w, at, i // 32)
    low = shift_and_mask(load_bytes(w, at + 48 + i // 64 * 32 + i % 32), i // 32 % 2 * 4, LOW_NIBBLE)
    fifth = shift_and_mask(load_bytes(w, at + 16 + i % 32), i // 32, 1)
    return fma(int_to_float(join_nibble(low, fifth)), splat(scale), splat(-shift))


@inline_kernel
def unpack_q6_k(w: Any, at: int, i: int) -> Any:
    """(d·s)(q − 32); each half of a block is 64 bytes of nibbles, 32 of pairs of bits and 8 scales."""
    upper, j = i // 128, i % 128
    low = shift_and_mask(load_bytes(w, at + upper * 64 + j % 64), j // 64 * 4, LOW_NIBBLE)
    high = shift_and_mask(load_bytes(w, at + 128 + upper * 32 + j % 32), j // 32 * 2, TWO_BITS)
    s = np.float32(np.int8(w[at + 192 + i // 16]))
    scale = load_float16(w, at + 208) * s
    return fma(int_to_float(join_nibble(low, high)), splat(scale), splat(np.float32(-32) * scale))


@inline_kernel
def unpack_f16(w: Any, at: int, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return float16_to_float32(load_uint16(w, at + 2 * i))


@inline_kernel
def unpack_bf16(w: Any, at: int, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return bfloat16_to_float32(load_uint16(w, at + 2 * i))


TILE_FLOATS = 8192
"""Unpacked numbers in a cached tile, about."""
HALF_BLOCK = 32
"""float16 or bfloat16 numbers that are treated as a block."""
ZERO = np.float32(0)

PRODUCT_SIGNATURE = types.void(*[types.int64] * 6)


@kernel
def tile_rows(inputs: int) -> int:
    """Unpacked rows of w in a tile."""
    return max(1, min(64, TILE_FLOATS // inputs // 2 * 2), min(4, MAX_STACK_FLOATS // inputs))


UNPACK: dict[WeightFormat, Any] = {
    F16: unpack_f16,
    BF16: unpack_bf16,
    Q8_0: unpack_q8_0,
    Q4_0: unpack_q4_0,
    Q4_1: unpack_q4_1,
    Q4_K: unpack_q4_k,
    Q5_K: unpack_q5_k,
    Q6_K: unpack_q6_k,
}
"""Format → its unpacking kernel."""


def _product_of(kind: WeightFormat) -> Callable[..., None]:
    unpack, halves = UNPACK[kind], kind.block == 1
    block, size = (HALF_BLOCK, 2 * HALF_BLOCK) if halves else (kind.block, kind.block_bytes)
    together = GROUP // block

    def multiply_row(address: int, inputs: int, x_at: int, y_at: int, first: int, last: int) -> None:
        """y[first : last] of one row of x, or, if x_at is 0, row `first` of w unpacked."""
        blocks = inputs // block
        w = bytes_at(address, last * blocks * size)
        if x_at == 0:
            y = floats_at(y_at, inputs)
            for b in range(blocks):
                for i in range(0, block, WIDTH):
                    store(y, b * block + i, unpack(w, (first * blocks + b) * size, i))
            return
        x, y = floats_at(x_at, inputs), floats_at(y_at, last)
        for o in range(first, last):
            A = splat(ZERO)
            for start in range(0, blocks, together):
                a = splat(ZERO)
                for b in range(start, min(start + together, blocks)):
                    for i in range(0, block, WIDTH):
                        a = fma(unpack(w, (o * blocks + b) * size, i), load(x, b * block + i), a)
                A = vadd(A, a)
            y[o] = vsum(A)

    multiply_row.__qualname__ = kind.name  # the disk cache tells generated functions apart by their names
    return multiply_row


@cache
def compiled_product(kind: WeightFormat) -> Any:
    """The compiled function of a format, whose `address` is in the weight table."""
    with CompileNotice(f"matrix products with {kind.name} weights"):
        return c_callback(PRODUCT_SIGNATURE, _product_of(kind))


@kernel
def product(
    function: int, w: int, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int
) -> None:
    """The product with w at an address, in the format of the compiled `function`."""
    if rows == 1:
        call_address(function, w, inputs, x.ctypes.data, out.y.ctypes.data + 4 * out.shift, first, last)
        return
    size = tile_rows(inputs)
    tile = floats_at(stack_alloc(size * inputs), size * inputs)
    for start in range(first, last, size):
        stop = min(start + size, last)
        for o in range(start, stop):
            call_address(function, w, inputs, 0, tile.ctypes.data + 4 * (o - start) * inputs, o, o + 1)
        dense_matmul.product(
            tile, inputs, x, rows, Outputs(out.y, out.width, out.shift + start), 0, stop - start
        )
