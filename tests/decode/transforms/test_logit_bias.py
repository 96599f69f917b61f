import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import LogitBias
from unspool.interfaces import Step

SCORES = torch.tensor([[-1.0, -2.0, -math.inf]])


def test_by_hand():
    assert LogitBias({1: 1.5, 2: 100.0})(SCORES, Step(SCORES), [Hypothesis(0, 0, ())]).tolist() == [
        [-1.0, -0.5, -math.inf]
    ]


def test_it_is_a_value_however_it_was_written():
    rule = LogitBias({5: -1, 2: 0.5})
    assert rule.bias == ((2, 0.5), (5, -1.0))
    assert rule == LogitBias([(5, -1.0), (2, 0.5)])
    assert hash(rule) == hash(LogitBias({2: 0.5, 5: -1.0}))


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_every_row_gets_the_same_bias_and_the_opposite_takes_it_back(any_scores, data):
    scores = data.draw(any_scores).double()
    table = data.draw(st.dictionaries(st.integers(0, scores.shape[1] - 1), st.floats(-50, 50), min_size=1))
    paths = [Hypothesis(0, 0, ())] * len(scores)
    there = LogitBias(table)(scores, Step(scores), paths)
    for token, bias in table.items():
        assert torch.equal(there[:, token], scores[:, token] + bias)
    back = LogitBias({token: -bias for token, bias in table.items()})(there, Step(scores), paths)
    assert torch.allclose(back, scores, atol=1e-9)


@pytest.mark.parametrize(
    ("bias", "error"),
    [({}, ValueError), ({0: math.nan}, ValueError), ({-1: 1.0}, ValueError), ({0: "1"}, TypeError)],
)
def test_impossible_biases_are_refused(bias, error):
    with pytest.raises(error, match=r"LogitBias\.bias"):
        LogitBias(bias)


def test_tokens_beyond_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"LogitBias\.bias holds the token ids \[3\]"):
        LogitBias({3: 1.0})(SCORES, Step(SCORES), [Hypothesis(0, 0, ())])
