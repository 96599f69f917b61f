import numba
import numpy as np
import pytest
import torch

from unspool.engine.layers import log_softmax_phase, matmul_phase
from unspool.engine.weight_table import FIELDS, INPUTS, OUTPUTS


@numba.njit
def counted(part, x, rows, y, first, last):
    """A product that says how often it has made each output, and of which input."""
    for n in range(rows):
        for o in range(first, last):
            y[n * part[OUTPUTS] + o] += x[n]


multiply = matmul_phase(counted)


@numba.njit
def made(part, x, rows, y, turns, threads):
    return multiply(part, x, rows, y, turns, 0, threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_output_is_computed_once_for_any_number_of_threads(threads):
    part, turns = np.zeros(FIELDS, np.int64), np.zeros(2, np.int64)
    part[OUTPUTS], part[INPUTS] = 1000, 3000
    x, y = np.array([1, 2, 4], np.float32), np.zeros(3000, np.float32)
    assert made(part, x, 3, y, turns, threads) == 1
    assert y.tolist() == [1.0] * 1000 + [2.0] * 1000 + [4.0] * 1000
    assert (turns[1] == 1) == (threads == 1)


@pytest.mark.parametrize("cap", [0.0, 2.5])
def test_log_softmax_phase_with_and_without_cap(cap):
    logits = np.random.default_rng(0).normal(size=(3, 21)).astype(np.float32) * 5
    logp, log_norm, turns = logits.copy().reshape(-1), np.zeros(3, np.float32), np.zeros(2, np.int64)
    assert numba.njit(lambda p, z, turns: log_softmax_phase(p, z, cap, turns, 0))(logp, log_norm, turns) == 1
    if cap:
        logits = cap * np.tanh(logits / cap)
    want = torch.from_numpy(logits).log_softmax(-1).numpy()
    np.testing.assert_allclose(logp.reshape(3, 21), want, atol=1e-6)
    np.testing.assert_allclose(logits - log_norm[:, None], want, atol=1e-6)
