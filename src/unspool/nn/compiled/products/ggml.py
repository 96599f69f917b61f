"""The formats of ggml: what a number of a block is, in lanes.

    Q8_0   d · q             32 numbers: d in half precision, q in bytes
    Q4_0   d · (q − 8)       32: d, then 16 bytes, low nibbles before high ones
    Q4_1   d · q + m         32: d, m, the same nibbles
    Q4_K   (d·s) q − dmin·m  256: d, dmin, 12 bytes with s and m of 8 groups in 6 bits each, then nibbles
    Q5_K   the same          with 32 bytes of fifth bits before the nibbles
    Q6_K   (d·s)(q − 32)     256: 128 bytes of low nibbles, 64 of upper pairs of bits, s of 16 groups, d

Each function gives WIDTH numbers from number i of the block that begins at byte `at` of w; i is a multiple of
WIDTH. Gerganov et al., ggml-common.h and ggml-quants.c (papers.bib: gerganov2023ggml).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool.kernels.kernel import small_kernel
from unspool.kernels.lanes import fma, spread, times
from unspool.kernels.packed_lanes import above, codes, half, numbers, part, signed_codes

LOW, PAIR, SIX = 15, 3, 63


@small_kernel
def q8_0(w: Any, at: int, i: int) -> Any:
    """d · q."""
    return times(numbers(signed_codes(w, at + 2 + i)), spread(half(w, at)))


@small_kernel
def q4_0(w: Any, at: int, i: int) -> Any:
    """d · (q − 8): made as d · q − 8 d, which is exact in its second term."""
    q = numbers(part(codes(w, at + 2 + i % 16), i // 16 * 4, LOW))
    d = half(w, at)
    return fma(q, spread(d), spread(np.float32(-8) * d))


@small_kernel
def q4_1(w: Any, at: int, i: int) -> Any:
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
def q4_k(w: Any, at: int, i: int) -> Any:
    """(d·s) q − dmin·m; 64 numbers are 32 bytes: their low nibbles, then their high ones."""
    scale, shift = _scale_and_shift(w, at, i // 32)
    q = part(codes(w, at + 16 + i // 64 * 32 + i % 32), i // 32 % 2 * 4, LOW)
    return fma(numbers(q), spread(scale), spread(-shift))


@small_kernel
def q5_k(w: Any, at: int, i: int) -> Any:
    """The same; the fifth bits of group g are the g-th bits of 32 bytes."""
    scale, shift = _scale_and_shift(w, at, i // 32)
    low = part(codes(w, at + 48 + i // 64 * 32 + i % 32), i // 32 % 2 * 4, LOW)
    fifth = part(codes(w, at + 16 + i % 32), i // 32, 1)
    return fma(numbers(above(low, fifth)), spread(scale), spread(-shift))


@small_kernel
def q6_k(w: Any, at: int, i: int) -> Any:
    """(d·s)(q − 32); each half of a block is 64 bytes of nibbles, 32 of pairs of bits and 8 scales."""
    upper, j = i // 128, i % 128
    low = part(codes(w, at + upper * 64 + j % 64), j // 64 * 4, LOW)
    high = part(codes(w, at + 128 + upper * 32 + j % 32), j // 32 * 2, PAIR)
    s = np.float32(np.int8(w[at + 192 + i // 16]))
    scale = half(w, at + 208) * s
    return fma(numbers(above(low, high)), spread(scale), spread(np.float32(-32) * scale))
