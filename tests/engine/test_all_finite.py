import math

import pytest
import torch

from unspool.engine.weight_formats import all_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 500, 999])
def test_one_nan_among_a_thousand_numbers_is_found(dtype, wrong, place):
    numbers = torch.linspace(-3, 3, 1000).to(dtype)
    assert all_finite(numbers)
    numbers[place] = wrong
    assert not all_finite(numbers)
    assert not all_finite(numbers.view(10, 100).T)
