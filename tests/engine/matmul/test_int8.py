import numpy as np
import pytest
import torch

from unspool.engine.stored_weights import quantise_int8


def test_scales_are_multiplied_after_the_sum_of_a_group(multiplied):
    weight = quantise_int8(torch.tensor([[127.0] + [0.0] * 63 + [-254.0, 2.0] + [0.0] * 62]))
    x = np.zeros((1, 128), np.float32)
    x[0, [0, 64, 65]] = 0.5, 1, 10
    assert multiplied([weight], x)[0, 0] == pytest.approx(0.5 * 127 - 254 + 20, abs=254 * 10 / 65024)


@pytest.mark.parametrize("outputs", [1, 16, 33])
@pytest.mark.parametrize("rows", [1, 3, 7, 8, 12, 17])
def test_any_range_of_outputs_and_nothing_else_is_written(outputs, rows, multiplied):
    rng = np.random.default_rng(rows)
    weight = quantise_int8(torch.from_numpy(rng.standard_normal((outputs, 130)).astype(np.float32)))
    x = rng.standard_normal((rows, 130)).astype(np.float32)
    whole = multiplied([weight], x)
    np.testing.assert_allclose(whole, x @ weight.restore().numpy().T, rtol=1e-4, atol=1e-3)
    for first, last in ((0, 1), (outputs - 1, outputs), (5, 20)):
        part = multiplied([weight], x, None, min(first, outputs), min(last, outputs))
        mine = slice(min(first, outputs), min(last, outputs))
        np.testing.assert_array_equal(part[:, mine], whole[:, mine])
        assert (np.delete(part, np.s_[mine], axis=1) == -77).all()


def test_the_largest_and_the_smallest_code(multiplied):
    weight = quantise_int8(torch.tensor([[-1.27] * 64, [1.27] * 64]))
    x = np.ones((3, 64), np.float32)
    np.testing.assert_allclose(multiplied([weight], x), [[-81.28, 81.28]] * 3, rtol=1e-6)
