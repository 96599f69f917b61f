import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import MinPLogitsWarper

from unspool.decode.transforms import MinP


def test_by_hand():
    p = torch.tensor([[0.6, 0.25, 0.1, 0.05]]).log()
    assert MinP(0.1).keeps(p).tolist() == [[True, True, True, False]]
    assert MinP(0.4).keeps(p).tolist() == [[True, True, False, False]]


def test_zero_keeps_all_and_one_the_best():
    p = torch.tensor([[0.4, 0.4, 0.2, 0.0]]).log()
    assert MinP(0).keeps(p).tolist() == [[True, True, True, False]]
    assert MinP(1).keeps(p).tolist() == [[True, True, False, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), m=st.floats(0, 1), n=st.floats(0, 1))
def test_a_larger_m_keeps_less(any_scores, data, m, n):
    scores = data.draw(any_scores)
    assert (MinP(max(m, n)).keeps(scores) <= MinP(min(m, n)).keeps(scores)).all()


@pytest.mark.parametrize("m", [0.01, 0.05, 0.5, 1.0])
def test_the_kept_set_is_that_of_hugging_face(matrices, m):
    for name, scores in matrices.items():
        theirs = MinPLogitsWarper(m)(None, scores) > -math.inf
        assert torch.equal(MinP(m).keeps(scores), theirs), name


@pytest.mark.parametrize("m", [-0.1, 1.1, math.nan])
def test_impossible_m_is_refused(m):
    with pytest.raises(ValueError, match=r"MinP\.m is .*0 ≤ m ≤ 1"):
        MinP(m)
