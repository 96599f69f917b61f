import threading

import numba
import numpy as np

from unspool.engine.threads import barrier, claim, complete


@numba.njit(nogil=True)
def share(turns, done, sums):
    """Three phases; each piece of a phase adds up what the phase before wrote."""
    phase = np.int64(0)
    for _ in range(3):
        piece = claim(turns, phase)
        while piece < done.shape[1]:
            done[phase, piece] += 1
            before = sums[phase - 1].sum() if phase else 1
            sums[phase, piece] = before
            piece = complete(turns, phase)
        phase = barrier(turns, phase, done.shape[1])
    return phase


def test_every_chunk_is_processed_once_and_phases_run_in_order():
    for _ in range(20):
        turns, done, sums = np.zeros(6, np.int64), np.zeros((3, 50), np.int64), np.zeros((3, 50), np.int64)
        threads = [threading.Thread(target=share, args=(turns, done, sums)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (done == 1).all()
        assert (sums == [[1], [50], [2500]]).all()


def test_a_late_thread_finds_no_chunks():
    turns, done, sums = np.zeros(6, np.int64), np.zeros((3, 5), np.int64), np.zeros((3, 5), np.int64)
    assert share(turns, done, sums) == share(turns, done, sums) == 3
    assert (done == 1).all()
