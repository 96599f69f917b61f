import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.transforms import MinP, TopA


def test_by_hand():
    # max p = 0.6: a = 0.5 → 0.18, a = 0.1 → 0.036.
    p = torch.tensor([[0.6, 0.25, 0.1, 0.05]]).log()
    assert TopA(0.5).keeps(p).tolist() == [[True, True, False, False]]
    assert TopA(0.1).keeps(p).all()


def test_zero_keeps_everything():
    assert TopA(0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), a=st.floats(0, 1), b=st.floats(0, 1))
def test_a_larger_a_keeps_less_but_never_less_than_min_p(any_scores, data, a, b):
    scores = data.draw(any_scores)
    assert (TopA(max(a, b)).keeps(scores) <= TopA(min(a, b)).keeps(scores)).all()
    assert (MinP(a).keeps(scores) <= TopA(a).keeps(scores)).all()


def test_the_kept_set_is_the_definition(matrices):
    for name, scores in matrices.items():
        p = scores.softmax(dim=-1)
        wanted = (p >= 0.2 * p.max(dim=-1, keepdim=True).values ** 2) & (scores > -math.inf)
        assert torch.equal(TopA(0.2).keeps(scores), wanted), name


@pytest.mark.parametrize("a", [-0.1, 1.1, math.nan])
def test_impossible_a_is_refused(a):
    with pytest.raises(ValueError, match=r"TopA\.a is .*0 ≤ a ≤ 1"):
        TopA(a)
