import pytest
import torch

from unspool.models.loading.weights import known_precision


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_by_name_or_as_torch_calls_it(name):
    assert known_precision(name) is known_precision(getattr(torch, name)) is getattr(torch, name)


@pytest.mark.parametrize("dtype", ["float8", "", "Float32", None, 16, [], torch.int8, torch.complex64, float])
def test_others_are_refused_in_words(dtype):
    with pytest.raises(ValueError, match=r"^dtype .* is unknown: choose from float32, bfloat16, float16"):
        known_precision(dtype)
