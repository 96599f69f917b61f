import numpy as np
import torch

from unspool.nn.stored.int8 import quantise_int8


def test_hand_computed_scales_are_multiplied_behind_the_sum_of_a_group(multiplied):
    weight = quantise_int8(torch.tensor([[127.0] + [0.0] * 63 + [-254.0, 2.0] + [0.0] * 62]))
    x = np.zeros((1, 128), np.float32)
    x[0, [0, 64, 65]] = 0.5, 1, 10
    assert multiplied([weight], x)[0, 0] == 0.5 * 127 - 254 + 20


def test_the_largest_and_the_smallest_code(multiplied):
    weight = quantise_int8(torch.tensor([[-1.27] * 64, [1.27] * 64]))
    x = np.ones((3, 64), np.float32)
    np.testing.assert_allclose(multiplied([weight], x), [[-81.28, 81.28]] * 3, rtol=1e-6)
