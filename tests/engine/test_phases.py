import numba
import numpy as np
import pytest
import torch

from unspool.engine.layers import log_softmax_phase
from unspool.engine.matmul import Inputs, matmul_phase
from unspool.engine.weight_table import WeightTable


@numba.njit
def multiplied(part, x, rows, y, queue, threads):
    return matmul_phase(part, Inputs(x, x), rows, y, queue, 0, threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_output_is_computed_once_for_any_number_of_threads(threads):
    weights, queue = WeightTable(0), np.zeros(2, np.int64)
    weight = torch.arange(1000.0)[:, None].expand(1000, 3000).contiguous()
    weights.put(0, 0, weight)
    x, y = np.zeros(3 * 3000, np.float32), np.full(3000, np.nan, np.float32)
    x[[0, 3000, 6000]] = 1, 2, 4
    assert multiplied(weights.table[0, 0], x, 3, y, queue, threads) == 1
    np.testing.assert_array_equal(y.reshape(3, 1000), np.outer([1, 2, 4], np.arange(1000)))
    assert (queue[1] == 1) == (threads == 1)


@pytest.mark.parametrize("cap", [0.0, 2.5])
def test_log_softmax_phase_with_and_without_cap(cap):
    logits = np.random.default_rng(0).normal(size=(3, 21)).astype(np.float32) * 5
    logp, log_norm, turns = logits.copy().reshape(-1), np.zeros(3, np.float32), np.zeros(2, np.int64)
    assert (
        numba.njit(lambda p, z, turns: log_softmax_phase(turns, 0, 3, p, z, cap))(logp, log_norm, turns) == 1
    )
    if cap:
        logits = cap * np.tanh(logits / cap)
    want = torch.from_numpy(logits).log_softmax(-1).numpy()
    np.testing.assert_allclose(logp.reshape(3, 21), want, atol=1e-6)
    np.testing.assert_allclose(logits - log_norm[:, None], want, atol=1e-6)
