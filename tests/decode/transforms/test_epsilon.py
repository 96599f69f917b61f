import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import EpsilonLogitsWarper

from unspool.decode.transforms import Epsilon

P = torch.tensor([[0.4, 0.35, 0.2, 0.05]]).log()


def test_by_hand():
    assert Epsilon(0.1).keeps(P).tolist() == [[True, True, True, False]]
    assert Epsilon(0.3).keeps(P).tolist() == [[True, True, False, False]]


def test_the_best_stays_however_improbable_with_all_its_ties():
    assert Epsilon(0.9).keeps(P).tolist() == [[True, False, False, False]]
    assert Epsilon(0.9).keeps(torch.tensor([[0.3, 0.4, 0.4]]).log()).tolist() == [[False, True, True]]


def test_zero_keeps_everything():
    assert Epsilon(0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=30)
@given(data=st.data(), e=st.floats(0, 1), f=st.floats(0, 1))
def test_a_larger_epsilon_keeps_less(any_scores, data, e, f):
    scores = data.draw(any_scores)
    assert (Epsilon(max(e, f)).keeps(scores) <= Epsilon(min(e, f)).keeps(scores)).all()


@pytest.mark.parametrize("epsilon", [1e-7, 6e-4, 0.05, 0.5])
def test_the_kept_set_is_that_of_hugging_face(matrices, epsilon):
    for name, scores in matrices.items():
        theirs = EpsilonLogitsWarper(epsilon)(None, scores) > -math.inf
        assert torch.equal(Epsilon(epsilon).keeps(scores), theirs), name


@pytest.mark.parametrize("epsilon", [-1e-9, 1.5, math.nan])
def test_impossible_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match=r"Epsilon\.epsilon is .*0 ≤ epsilon ≤ 1"):
        Epsilon(epsilon)
