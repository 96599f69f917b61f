import numpy as np
import pytest
import torch

from unspool.engine.transformer_engine import PositionTables
from unspool.nn.positions import Learned, RelativePositions, Rotary, Sinusoidal


def test_a_model_without_positions_has_empty_tables():
    tables = PositionTables([None, None], None).up_to(10)
    assert tables.cos.size == tables.sin.size == tables.added.size == 0
    assert tables.begins.tolist() == [-1, -1]


def test_tables_grow_and_keep_their_values():
    rotary, waves = PositionTables([Rotary(8)], None), PositionTables([None], Sinusoidal(6, 500))
    cos, added = rotary.up_to(3).cos[: 3 * 4], waves.up_to(3).added[: 3 * 6]
    np.testing.assert_allclose(cos.reshape(3, 4)[1], np.cos(10000.0 ** (-np.arange(0, 8, 2) / 8)), rtol=1e-6)
    assert rotary.up_to(300).cos.size >= 300 * 4
    assert waves.up_to(300).added.size >= 300 * 6
    np.testing.assert_array_equal(rotary.up_to(3).cos[: 3 * 4], cos)
    np.testing.assert_array_equal(waves.up_to(3).added[: 3 * 6], added)


def test_learned_positions_are_not_copied_and_have_a_limit():
    learned = Learned(6, 9)
    tables = PositionTables([None], learned)
    added = tables.up_to(9).added
    with torch.no_grad():
        learned.weight[8, 5] = 123
    assert added[-1] == 123
    with pytest.raises(ValueError, match="9 learned positions"):
        tables.up_to(10)


def test_layers_with_equal_rotary_angles_share_a_table():
    far, near = Rotary(8, 1000.0, turned_width=4), Rotary(8, 10.0, turned_width=4)
    tables = PositionTables([far, None, near, far], None)
    for length in (3, 300):
        arrays = tables.up_to(length)
        begins = arrays.begins
        assert begins[1] == -1
        assert begins[0] == begins[3] == 0 < begins[2]
        cos, sin = arrays.cos.reshape(-1, 2), arrays.sin.reshape(-1, 2)
        for begin, base in ((begins[0], 1000.0), (begins[2], 10.0)):
            angles = 2 * base ** -np.array([0.0, 0.5])
            np.testing.assert_allclose(cos[begin + 2], np.cos(angles), rtol=1e-6)
            np.testing.assert_allclose(sin[begin + 2], np.sin(angles), rtol=1e-6)


def test_every_layer_has_a_window_or_none():
    assert PositionTables([None] * 3, None, [None, 7, None]).up_to(0).windows.tolist() == [2**62, 7, 2**62]
    assert PositionTables([None] * 2, None).up_to(0).windows.tolist() == [2**62, 2**62]


def test_buckets_are_those_of_distances_behind_and_ahead():
    relative = RelativePositions(2, 8, 16, causal=False)
    tables = PositionTables([None], None, relative=relative)
    assert tables.up_to(0).buckets.size == 0
    buckets = tables.up_to(30).buckets
    middle = buckets.size // 2
    assert buckets[middle - 29 : middle + 30].tolist() == relative.bucket(torch.arange(-29, 30)).tolist()
