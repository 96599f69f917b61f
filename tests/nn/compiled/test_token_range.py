import numpy as np
import pytest

from unspool.engine.token_range import in_vocabulary


def test_tokens_of_the_vocabulary_are_given_back_side_by_side():
    tokens = np.arange(12, dtype=np.int32).reshape(6, 2)[:, 1]
    found = in_vocabulary(tokens, 12)
    assert found.tolist() == [1, 3, 5, 7, 9, 11]
    assert found.dtype == np.int64
    assert found.flags.c_contiguous
    assert in_vocabulary(np.empty(0, np.int64), 12).size == 0


@pytest.mark.parametrize("wrong", [-1, 12])
def test_others_are_refused(wrong):
    with pytest.raises(IndexError, match="from 0 to 11"):
        in_vocabulary(np.array([3, wrong]), 12)
