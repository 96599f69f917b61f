import numpy as np
import pytest
import torch

from unspool.errors import is_out_of_memory


@pytest.mark.parametrize("ask", [lambda: torch.empty(2**50), lambda: np.empty(2**50, np.float64)])
def test_what_torch_and_numpy_say_of_it_is_understood(ask):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        ask()
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("other", [OSError(2, "No such file"), RuntimeError("shapes"), ValueError("no")])
def test_other_errors_are_other_errors(other):
    assert not is_out_of_memory(other)


def test_a_system_without_memory_says_so_by_its_number():
    assert is_out_of_memory(OSError(12, "Cannot allocate memory"))
