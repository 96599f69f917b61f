"""Numbers that lie at an address: memory of torch's, or of a mapped file, as kernels read it.

Whoever calls has made sure that the memory is there and that so many numbers lie in it.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.np.arrayobj import make_array, populate_array

from unspool.kernels.kernel import operation


def _lying(kind: types.Array, whole: Any) -> Any:
    """The array of a kind whose numbers lie at an address, given as two whole numbers."""

    def build(context: Any, builder: Any, _: Any, args: Any) -> Any:
        address, size = args
        array = make_array(kind)(context, builder)
        data = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
        each = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
        populate_array(array, data=data, shape=[size], strides=[each], itemsize=each, meminfo=None)
        return array._getvalue()

    return kind(whole, whole), build


@operation
def floats(_: Any, address: Any, size: Any) -> Any:
    """The float32 numbers that lie at an address."""
    return _lying(types.Array(types.float32, 1, "C"), types.int64)


@operation
def octets(_: Any, address: Any, size: Any) -> Any:
    """The bytes that lie at an address."""
    return _lying(types.Array(types.uint8, 1, "C"), types.int64)
