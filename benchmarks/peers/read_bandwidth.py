"""What the machine can read: a plain compiled loop that adds up an array as large as a model.

It answers as an engine does, with the bytes of one pass as its only token.
"""

from __future__ import annotations

import numba
import numpy as np

from peers.conversation import converse
from peers.work import Work

PASSES = 4


@numba.njit(fastmath=True)
def add_up(numbers: np.ndarray) -> np.float32:
    total = np.float32(0.0)
    for at in range(len(numbers)):  # `for number in numbers` would not become vector instructions
        total += numbers[at]
    return total


@numba.njit(parallel=True)
def add_up_together(numbers: np.ndarray, threads: int) -> np.ndarray:
    piece, totals = len(numbers) // threads, np.zeros(threads, np.float32)
    for thread in numba.prange(threads):
        totals[thread] = add_up(numbers[thread * piece : (thread + 1) * piece])
    return totals


class ReadBandwidth:
    version = f"numba {numba.__version__}"

    def __init__(self, threads: int, megabytes: int) -> None:
        numba.set_num_threads(threads)
        self.threads = threads
        self.numbers = np.ones(megabytes * 1_000_000 // 4, np.float32)
        add_up_together(self.numbers, threads)

    def generate(self, work: Work) -> list[list[int]]:  # noqa: ARG002
        for _ in range(PASSES):
            add_up_together(self.numbers, self.threads)
        return [[self.numbers.nbytes * PASSES]]


if __name__ == "__main__":
    converse(ReadBandwidth)
