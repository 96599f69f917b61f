import numba
import numpy as np
import pytest
import torch

from unspool.engine.rnn.recurrent_cells import gru, lstm
from unspool.nn.rnn import GRU, LSTM


@numba.njit
def gru_once(g, u, h, width):
    gru(g, 1, u, 2, h, 3, width)


@numba.njit
def lstm_once(g, u, h, c, width):
    lstm(g, 1, u, 2, h, c, 3, width)


def behind(skipped, numbers):
    """Numbers that begin somewhere inside an array."""
    return np.concatenate((np.full(skipped, np.nan), numbers)).astype(np.float32)


def test_a_gru_by_hand():
    """r = z = ½, n = tanh(1 + ½ · 2), h = (n + 3)/2."""
    h = behind(3, [3])
    gru_once(behind(1, [0, 0, 1]), behind(2, [0, 0, 2]), h, 1)
    assert h[3] == pytest.approx((np.tanh(2) + 3) / 2)


def test_an_lstm_by_hand():
    """i = f = o = ½, c = ½ · 3 + ½ tanh(2), h = ½ tanh(c)."""
    h, c = behind(3, [9]), behind(3, [3])
    lstm_once(behind(1, [0, 0, 1, 0]), behind(2, [0, 0, 1, 0]), h, c, 1)
    assert c[3] == pytest.approx(1.5 + np.tanh(2) / 2)
    assert h[3] == pytest.approx(np.tanh(c[3]) / 2)


@pytest.mark.parametrize("width", [1, 8, 21])
@pytest.mark.parametrize("cell", [GRU, LSTM])
def test_they_are_torchs(cell, width):
    torch.manual_seed(width)
    net = cell(5, width)
    state, gates = torch.randn(1, width * net.parts), 3 * torch.randn(1, len(net.net.bias_ih_l0))
    with torch.inference_mode():
        want, whole = net.advance(0, gates, state)
        recur = net.recur(0, state[:, :width])
    g, u = behind(1, gates[0].numpy()), behind(2, recur[0].numpy())
    h = behind(3, state[0, :width].numpy())
    if cell is GRU:
        gru_once(g, u, h, width)
    else:
        c = behind(3, state[0, width:].numpy())
        lstm_once(g, u, h, c, width)
        np.testing.assert_allclose(c[3:], whole[0, width:].numpy(), atol=1e-6)
    np.testing.assert_allclose(h[3:], want[0].numpy(), atol=1e-6)
