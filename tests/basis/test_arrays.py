import numpy as np
import pytest
import torch

from unspool.basis.arrays import as_distribution, as_float64, as_masses, as_numpy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_float_type_of_torch_comes_through_exactly(dtype):
    x = torch.tensor([0.1, -2.5, 3e-5], requires_grad=False).to(dtype)
    assert as_float64(x).tolist() == x.double().tolist()


def test_a_tensor_that_requires_gradients_is_read():
    assert as_numpy(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


def test_numpy_arrays_are_not_copied():
    x = np.ones(3)
    assert as_numpy(x) is x
    assert as_float64(x) is x
    assert as_float64([1, 2]).dtype == np.float64


def test_a_distribution_is_normalised_in_float64():
    p = as_distribution(torch.tensor([0.5, 0.3, 0.2000049]), 3)
    assert p.dtype == np.float64
    assert p.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    ("p", "match"),
    [
        ([0.5, 0.5], "W has 3 rows"),
        ([[0.2, 0.3, 0.5]], "W has 3 rows"),
        ([0.5, float("nan"), 0.5], "contains nan"),
        ([1.5, -0.5, 0.0], "log-probabilities"),
        ([-0.7, -1.2, -1.6], "log-probabilities"),
        ([0.5, 0.3, 0.1], "sums to 0.9"),
        ([float("inf"), 0.0, 0.0], "contains inf"),
    ],
)
def test_a_value_that_is_not_a_distribution_is_refused(p, match):
    with pytest.raises(ValueError, match=match):
        as_distribution(np.array(p), 3)


def test_float32_sums_are_tolerated_and_input_is_untouched():
    p = np.full(50_000, 1 / 50_000, dtype=np.float32) * np.float32(1.00003)
    before = p.copy()
    assert as_distribution(p, 50_000).sum() == pytest.approx(1, abs=1e-12)
    assert (p == before).all()


@pytest.mark.parametrize("x", [None, "0.5", [[1], [1, 2]], np.array([1j]), {"a": 1}, object()])
def test_a_value_without_numbers_is_refused(x):
    with pytest.raises(TypeError, match="tensor of real numbers"):
        as_numpy(x)


@pytest.mark.parametrize(
    ("p", "match"), [([0.1, -0.1], "-0.1"), ([np.nan], "nan"), ([np.inf], "inf"), ([], "shape")]
)
def test_masses_are_neither_negative_nor_infinite(p, match):
    assert as_masses("p", [0.2, 0.3]).tolist() == [0.2, 0.3]
    with pytest.raises(ValueError, match=match):
        as_masses("p", p)
