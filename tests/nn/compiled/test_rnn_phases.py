import numba
import numpy as np

from unspool.engine.rnn.rnn_phases import bend, embed
from unspool.engine.weight_table import FIELDS, INPUTS, OUTPUTS, WEIGHT


def test_an_embedding_is_a_row_of_its_matrix():
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    part = np.zeros(FIELDS, np.int64)
    part[WEIGHT], part[OUTPUTS], part[INPUTS] = matrix.ctypes.data, 4, 3
    y = np.zeros(5, np.float32)
    numba.njit(lambda part, y: embed(part, 2, y, 1))(part, y)
    assert y.tolist() == [0, 6, 7, 8, 0]


def test_every_number_is_bent_and_none_behind_them():
    x = np.linspace(-3, 3, 23).astype(np.float32)
    bent, turns = x.copy(), np.zeros(2, np.int64)
    numba.njit(lambda x, turns: bend(x, 2, 11, turns, 0))(bent, turns)
    np.testing.assert_allclose(bent[:22], np.tanh(x[:22]), atol=1e-6)
    assert bent[22] == x[22]
    assert turns[1] == 2  # two rows, each finished once
