"""Weights in half precision: each two bytes, with nothing to restore but the type.

F16     sign, 5 bits of exponent, 10 of mantissa
BF16    the upper half of a float32
"""

from __future__ import annotations

from typing import Any

from unspool.kernels.kernel import small_kernel
from unspool.kernels.packed_lanes import from_bfloats, from_halves, shorts


@small_kernel
def f16(w: Any, at: int, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return from_halves(shorts(w, at + 2 * i))


@small_kernel
def bf16(w: Any, at: int, i: int) -> Any:
    """WIDTH numbers, from number i on."""
    return from_bfloats(shorts(w, at + 2 * i))
