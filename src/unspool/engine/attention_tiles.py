"""Tiles of attention: the scores of several queries, or their sums of values, computed at once.

    scores   p[j, t] = q_j · k_t            for R queries and the keys of C blocks
    values   out_j ← out_j + Σ_t p[j, t] v_t   for R queries and V vectors of their outputs, t ascending

A key or value that is loaded once serves R queries. Keys are stored transposed in a block, (key width,
BLOCK): a vector holds one component of WIDTH keys, so that no score needs a sum across a vector. The order of
every sum is the same for any R.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from unspool.engine.kernel import inline_kernel, llvm_intrinsic
from unspool.engine.simd import BOUNDSCHECK, FLOATS, WIDTH, llvm_fma, llvm_splat, load_as, store_as

BLOCK = 16
"""Tokens of a block of the KV cache: a multiple of WIDTH; few, because diverging rows copy one."""
VECTORS_PER_BLOCK = BLOCK // WIDTH
ZERO_VECTOR = ir.Constant(FLOATS, [0.0] * WIDTH)


def _load(builder: Any, data: Any, index: Any) -> Any:
    return load_as(builder, builder.gep(data, [index]), FLOATS)


def _sums(builder: Any, R: int, C: int) -> list[list[Any]]:
    return [[cgutils.alloca_once_value(builder, ZERO_VECTOR) for _ in range(C)] for _ in range(R)]


def _add_products(builder: Any, factors: list[Any], vectors: list[Any], sums: list[list[Any]]) -> None:
    """sums[r][c] += factors[r] · vectors[c]."""
    for factor, slots in zip(factors, sums, strict=True):
        splat = llvm_splat(builder, factor)
        for vector, slot in zip(vectors, slots, strict=True):
            builder.store(llvm_fma(builder, splat, vector, builder.load(slot)), slot)


def score_tile(R: int, C: int) -> Callable[..., Any]:
    """The kernel for R queries and the keys of C blocks.

    Its arguments: q; the array with the offsets of the queries in q and the index of the first; the width of
    a key; the cache, the offsets of its blocks, the index of the first block, and the offset of the keys in a
    block; p, the offset of the first score, and the stride of the queries in p.
    """

    @llvm_intrinsic
    def _tile(
        _: Any, q: Any, at: Any, j: Any, width: Any, kv: Any, starts: Any, block: Any, keys: Any, p: Any,
        p0: Any, stride: Any,
    ) -> Any:  # fmt: skip
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def number(array: int, index: Any) -> Any:
                return builder.load(builder.gep(data[array], [index]))

            data = {
                k: context.make_array(signature.args[k])(context, builder, args[k]).data
                for k in (0, 1, 4, 5, 8)
            }
            _, _, j, width, _, _, block, keys, _, p0, stride = args
            kind = j.type
            rows = [number(1, builder.add(j, kind(r))) for r in range(R)]
            begins = [builder.add(number(5, builder.add(block, kind(c))), keys) for c in range(C)]
            sums = _sums(builder, R, C * VECTORS_PER_BLOCK)
            with cgutils.for_range_slice(builder, kind(0), width, kind(1), kind) as (i, _):
                first = builder.mul(i, kind(BLOCK))
                places = [
                    builder.add(builder.add(begin, first), kind(k * WIDTH))
                    for begin in begins
                    for k in range(VECTORS_PER_BLOCK)
                ]
                vectors = [_load(builder, data[4], place) for place in places]
                _add_products(builder, [number(0, builder.add(row, i)) for row in rows], vectors, sums)
            for r, slots in enumerate(sums):
                to = builder.add(p0, builder.mul(stride, kind(r)))
                for c, slot in enumerate(slots):
                    where = builder.gep(data[8], [builder.add(to, kind(c * WIDTH))])
                    store_as(builder, where, builder.load(slot))
            return context.get_dummy_value()

        int_ = types.intp
        return types.void(q, at, int_, int_, kv, starts, int_, int_, p, int_, int_), build

    @inline_kernel
    def tile(
        q: Any, at: Any, j: int, width: int, kv: Any, starts: Any, block: int, keys: int, p: Any, p0: int,
        stride: int,
    ) -> None:  # fmt: skip
        if BOUNDSCHECK and (
            p0 < 0
            or p0 + (R - 1) * stride + C * BLOCK > p.size
            or min(starts[block], starts[block + C - 1]) + keys < 0
            or max(starts[block], starts[block + C - 1]) + keys + width * BLOCK > kv.size
        ):
            raise IndexError("a tile is outside an array")
        _tile(q, at, j, width, kv, starts, block, keys, p, p0, stride)

    return tile


def value_tile(R: int, V: int) -> Callable[..., Any]:
    """The kernel for R queries and V vectors of their outputs.

    Its arguments: p, the offset of the first query's numbers and the stride of the queries in p; the tokens
    of the range, counted from the start of a block; the cache, the offsets of its blocks, the index of that
    block, the offset of the values in a block, and the width of a value; out, the array with the offsets of
    the queries in out, the index of the first, and the first component.
    """

    @llvm_intrinsic
    def _tile(
        _: Any, p: Any, p0: Any, stride: Any, first: Any, last: Any, kv: Any, starts: Any, block: Any,
        values: Any, width: Any, out: Any, to: Any, j: Any, i: Any,
    ) -> Any:  # fmt: skip
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = {
                k: context.make_array(signature.args[k])(context, builder, args[k]).data
                for k in (0, 5, 6, 10, 11)
            }
            _, p0, stride, first, last, _, _, block, values, width, _, _, j, i = args
            kind = j.type
            outs = [builder.load(builder.gep(data[11], [builder.add(j, kind(r))])) for r in range(R)]
            places = [
                [builder.gep(data[10], [builder.add(builder.add(it, i), kind(v * WIDTH))]) for v in range(V)]
                for it in outs
            ]
            rows = [builder.add(p0, builder.mul(stride, kind(r))) for r in range(R)]
            sums = _sums(builder, R, V)
            for where, slots in zip(places, sums, strict=True):
                for place, slot in zip(where, slots, strict=True):
                    builder.store(load_as(builder, place, FLOATS), slot)
            size = kind(BLOCK)
            end = builder.udiv(builder.add(last, kind(BLOCK - 1)), size)
            with cgutils.for_range_slice(builder, builder.udiv(first, size), end, kind(1), kind) as (b, _):
                begin = builder.load(builder.gep(data[6], [builder.add(block, b)]))
                token = builder.mul(b, size)
                base = builder.add(builder.sub(builder.add(begin, values), builder.mul(token, width)), i)
                behind = builder.add(token, size)
                low = builder.select(builder.icmp_signed(">", token, first), token, first)
                high = builder.select(builder.icmp_signed("<", behind, last), behind, last)
                with cgutils.for_range_slice(builder, low, high, kind(1), kind) as (t, _):
                    value = builder.add(base, builder.mul(t, width))
                    vectors = [_load(builder, data[5], builder.add(value, kind(v * WIDTH))) for v in range(V)]
                    factors = [builder.load(builder.gep(data[0], [builder.add(row, t)])) for row in rows]
                    _add_products(builder, factors, vectors, sums)
            for where, slots in zip(places, sums, strict=True):
                for place, slot in zip(where, slots, strict=True):
                    store_as(builder, place, builder.load(slot))
            return context.get_dummy_value()

        int_ = types.intp
        return types.void(p, int_, int_, int_, int_, kv, starts, int_, int_, int_, out, to, int_, int_), build

    @inline_kernel
    def tile(
        p: Any, p0: int, stride: int, first: int, last: int, kv: Any, starts: Any, block: int, values: int,
        width: int, out: Any, to: Any, j: int, i: int,
    ) -> None:  # fmt: skip
        if BOUNDSCHECK and (
            min(p0, first) < 0
            or p0 + (R - 1) * stride + last > p.size
            or min(to[j], to[j + R - 1]) + i < 0
            or max(to[j], to[j + R - 1]) + i + V * WIDTH > out.size
        ):
            raise IndexError("a tile is outside an array")
        _tile(p, p0, stride, first, last, kv, starts, block, values, width, out, to, j, i)

    return tile
