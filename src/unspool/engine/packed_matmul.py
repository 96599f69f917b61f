"""Products with packed weights, in place: what all formats have in common.

    y_no = Σ_i w_oi · x_ni,   w_oi restored from its block when it is wanted

A format gives `values(w, at, i)`: lanes of restored numbers, from number i on, of the block whose bytes
begin at `at`. One row of x meets them one after another. For several rows, a few rows of w are restored into
a tile that stays in the cache, and `dense` multiplies those. The order of every sum is the same both ways.

Each format is compiled by itself when a model first has it, and called by its address.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from unspool.engine import dense_matmul
from unspool.engine.compile_cache import Announcement, listening, version
from unspool.engine.dense_matmul import GROUP, Outputs
from unspool.engine.kernel import call, callback, kernel, small_kernel
from unspool.engine.memory import MAX_STACK_BYTES, floats, octets, reserve
from unspool.engine.simd import WIDTH, fma, load, plus, spread, store, times, total
from unspool.engine.simd_bytes import (
    above,
    codes,
    from_bfloats,
    from_halves,
    half,
    numbers,
    part,
    shorts,
    signed_codes,
)
from unspool.engine.weight_formats import BF16, F16, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0, Format

# The formats of ggml: what a number of a block is, in lanes.
#
#     Q8_0   d · q             32 numbers: d in half precision, q in bytes
#     Q4_0   d · (q − 8)       32: d, then 16 bytes, low nibbles before high ones
#     Q4_1   d · q + m         32: d, m, the same nibbles
#     Q4_K   (d·s) q − dmin·m  256: d, dmin, 12 bytes with s and m of 8 groups in 6 bits each, then nibbles
#     Q5_K   the same          with 32 bytes of fifth bits before the nibbles
#     Q6_K   (d·s)(q − 32)     256: 128 bytes of low nibbles, 64 of upper pairs of bits, s of 16 groups, d
#
# Each function gives WIDTH numbers from number i of the block that begins at byte `at` of w; i is a multiple
# of WIDTH. Gerganov et al., ggml-common.h and ggml-quants.c (papers.bib: gerganov2023ggml).


LOW, PAIR, SIX = 15, 3, 63


@small_kernel
def unpack_q8_0(w: Any, at: int, i: int) -> Any:
    """d · q."""
    return times(numbers(signed_codes(w, at + 2 + i)), spread(half(w, at)))


@small_kernel
def unpack_q4_0(w: Any, at: int, i: int) -> Any:
    """d · (q − 8): made as d · q − 8 d, which is exact in its second term."""
    q = numbers(part(codes(w, at + 2 + i % 16), i // 16 * 4, LOW))
    d = half(w, at)
    return fma(q, spread(d), spread(np.float32(-8) * d))


@small_kernel
def unpack_q4_1(w: Any, at: int, i: int) -> Any:
    """d · q + m."""
    q = numbers(part(codes(w, at + 4 + i % 16), i // 16 * 4, LOW))
    return fma(q, spread(half(w, at)), spread(half(w, at + 2)))


@small_kernel
def _scale_and_shift(w: Any, at: int, group: int) -> Any:
    """d · s and dmin · m of one of the eight groups of a block of Q4_K or Q5_K."""
    s0 = at + 4
    if group < 4:
        s, m = w[s0 + group] & SIX, w[s0 + 4 + group] & SIX
    else:
        last = w[s0 + 4 + group]
        s = (last & LOW) | ((w[s0 + group - 4] >> 6) << 4)
        m = (last >> 4) | ((w[s0 + group] >> 6) << 4)
    return half(w, at) * np.float32(s), half(w, at + 2) * np.float32(m)


@small_kernel
def unpack_q4_k(w: Any, at: int, i: int) -> Any:
    """(d·s) q − dmin·m; 64 numbers are 32 bytes: their low nibbles, then their high ones."""
    scale, shift = _scale_and_shift(w, at, i // 32)
    q = part(codes(w, at + 16 + i // 64 * 32 + i % 32), i // 32 % 2 * 4, LOW)
    return fma(numbers(q), spread(scale), spread(-shift))


@small_kernel
def unpack_q5_k(w: Any, at: int, i: int) -> Any:
    """The same; the fifth bits of group g are the g-th bits of 32 bytes."""
    scale, shift = _scale_and_shift(w, at, i // 32)
    low = part(codes(w, at + 48 + i // 64 * 32 + i % 32), i // 32 % 2 * 4, LOW)
    fifth = part(codes(w, at + 16 + i % 32), i // 32, 1)
    return fma(numbers(above(low, fifth)), spread(scale), spread(-shift))


@small_kernel
def unpack_q6_k(w: Any, at: int, i: int) -> Any:
    """(d·s)(q − 32); each half of a block is 64 bytes of nibbles, 32 of pairs of bits and 8 scales."""
    upper, j = i // 128, i % 128
    low = part(codes(w, at + upper * 64 + j % 64), j // 64 * 4, LOW)
    high = part(codes(w, at + 128 + upper * 32 + j % 32), j // 32 * 2, PAIR)
    s = np.float32(np.int8(w[at + 192 + i // 16]))
    scale = half(w, at + 208) * s
    return fma(numbers(above(low, high)), spread(scale), spread(np.float32(-32) * scale))


# Weights in half precision: each two bytes, with nothing to restore but the type.
#
# F16     sign, 5 bits of exponent, 10 of mantissa
# BF16    the upper half of a float32


@small_kernel
def unpack_f16(w: Any, at: int, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return from_halves(shorts(w, at + 2 * i))


@small_kernel
def unpack_bf16(w: Any, at: int, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return from_bfloats(shorts(w, at + 2 * i))


TILE = 8192
"""Restored numbers that stay in the nearest cache, about."""
HALVES = 32
"""Numbers in half precision that are taken for a block."""
ZERO = np.float32(0)

ENTRY = types.void(*[types.int64] * 6)


@kernel
def tile_rows(inputs: int) -> int:
    """How many restored rows of w a tile holds."""
    return max(1, min(64, TILE // inputs // 2 * 2), min(4, MAX_STACK_BYTES // inputs))


@small_kernel
def _multiplied(
    values: Any, block: int, size: int, address: int, inputs: int, x_at: int, y_at: int, first: int, last: int
) -> None:
    """y[first : last] of one row of x; without x, row `first` restored. A block has `size` bytes."""
    blocks = inputs // block
    w = octets(address, last * blocks * size)
    if x_at == 0:
        y = floats(y_at, inputs)
        for b in range(blocks):
            for i in range(0, block, WIDTH):
                store(y, b * block + i, values(w, (first * blocks + b) * size, i))
        return
    x, y, together = floats(x_at, inputs), floats(y_at, last), GROUP // block
    for o in range(first, last):
        A = spread(ZERO)
        for start in range(0, blocks, together):
            a = spread(ZERO)
            for b in range(start, min(start + together, blocks)):
                for i in range(0, block, WIDTH):
                    a = fma(values(w, (o * blocks + b) * size, i), load(x, b * block + i), a)
            A = plus(A, a)
        y[o] = total(A)


# One function for each format, written out: numba does not find on disk what is made of other functions. The
# version, which is not 0, is how it is found.


def _q8_0(version: int) -> Any:
    def q8_0(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_q8_0, 32, 34, w, inputs, x, y, first, last)

    return q8_0


def _q4_0(version: int) -> Any:
    def q4_0(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_q4_0, 32, 18, w, inputs, x, y, first, last)

    return q4_0


def _q4_1(version: int) -> Any:
    def q4_1(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_q4_1, 32, 20, w, inputs, x, y, first, last)

    return q4_1


def _q4_k(version: int) -> Any:
    def q4_k(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_q4_k, 256, 144, w, inputs, x, y, first, last)

    return q4_k


def _q5_k(version: int) -> Any:
    def q5_k(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_q5_k, 256, 176, w, inputs, x, y, first, last)

    return q5_k


def _q6_k(version: int) -> Any:
    def q6_k(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_q6_k, 256, 210, w, inputs, x, y, first, last)

    return q6_k


def _f16(version: int) -> Any:
    def f16(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_f16, HALVES, 2 * HALVES, w, inputs, x, y, first, last)

    return f16


def _bf16(version: int) -> Any:
    def bf16(w: int, inputs: int, x: int, y: int, first: int, last: int) -> None:
        if version:
            _multiplied(unpack_bf16, HALVES, 2 * HALVES, w, inputs, x, y, first, last)

    return bf16


MADE: dict[Format, Callable[[int], Any]] = {
    F16: _f16,
    BF16: _bf16,
    Q8_0: _q8_0,
    Q4_0: _q4_0,
    Q4_1: _q4_1,
    Q4_K: _q4_k,
    Q5_K: _q5_k,
    Q6_K: _q6_k,
}
"""How each format that is multiplied by its address is compiled."""


@cache
def compiled_product(kind: Format) -> Any:
    """The compiled function of a format: its `address` is what a table of weights holds."""
    with listening(Announcement(f"products with weights in {kind.name}")):
        return callback(ENTRY, MADE[kind](version(Path(__file__).parents[1])))


@kernel
def product(
    function: int, w: int, inputs: int, x: Any, rows: int, out: Outputs, first: int, last: int
) -> None:
    """`dense.product` for w that begins at an address, in a format that `function` is compiled for."""
    if rows == 1:
        call(function, w, inputs, x.ctypes.data, out.y.ctypes.data + 4 * out.shift, first, last)
        return
    size = tile_rows(inputs)
    tile = floats(reserve(size * inputs), size * inputs)
    for start in range(first, last, size):
        stop = min(start + size, last)
        for o in range(start, stop):
            call(function, w, inputs, 0, tile.ctypes.data + 4 * (o - start) * inputs, o, o + 1)
        dense_matmul.product(
            tile, inputs, x, rows, Outputs(out.y, out.width, out.shift + start), 0, stop - start
        )
