"""Phases of the steps of Transformers and of recurrent models, each shared by all threads (`turns`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unspool.kernels.kernel import kernel
from unspool.kernels.log_softmax import log_softmax
from unspool.kernels.turns import finish, meet, take
from unspool.nn.compiled.parts import INPUTS, OUTPUTS
from unspool.nn.compiled.products.row_tiles import piece_size
from unspool.nn.compiled.soft_cap import bend


def multiply_by(product: Callable[..., Any]) -> Callable[..., int]:
    """The phase y = x · Wᵀ + b, by a kernel for the outputs from one number to another."""

    @kernel
    def multiply(part: Any, x: Any, rows: int, y: Any, turns: Any, phase: int, threads: int) -> int:
        outputs = part[OUTPUTS]
        size = piece_size(outputs, part[INPUTS], rows, threads)
        pieces = (outputs + size - 1) // size
        piece = take(turns, phase)
        while piece < pieces:
            product(part, x, rows, y, piece * size, min(outputs, (piece + 1) * size))
            piece = finish(turns, phase)
        return meet(turns, phase, pieces)

    return multiply


@kernel
def normalise(logp: Any, log_norm: Any, cap: Any, turns: Any, phase: int) -> int:
    """The logits of every row, bent to a cap where there is one, to log-probabilities, in place."""
    count = log_norm.size
    size = logp.size // count
    n = take(turns, phase)
    while n < count:
        if cap != 0:
            bend(logp, n * size, size, np.float32(1), cap)
        log_norm[n] = log_softmax(logp, n * size, size)
        n = finish(turns, phase)
    return meet(turns, phase, count)
