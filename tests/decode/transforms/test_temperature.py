import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import TemperatureLogitsWarper

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import Temperature
from unspool.interfaces import Step


def apply(t, scores):
    return Temperature(t)(scores, Step(scores), [Hypothesis(0, 0, ())] * len(scores)).log_softmax(dim=-1)


def test_by_hand():
    # 0.64, 0.32, 0.04 to the power ½: 0.8, 0.5657, 0.2, over their sum 1.5657.
    p = apply(2.0, torch.tensor([[0.64, 0.32, 0.04]]).log()).exp()
    assert p[0].tolist() == pytest.approx([0.51096, 0.36130, 0.12774], abs=1e-5)


def test_one_is_the_identity():
    scores = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert torch.equal(Temperature(1.0)(scores, Step(scores), [Hypothesis(0, 0, ())]), scores)


@pytest.mark.parametrize("t", [1e-5, 1e-9, 1e-40, 5e-324])
def test_towards_zero_it_is_the_argmax(t):
    scores = torch.tensor([[0.3, 0.4, 0.3], [0.0, 0.45, 0.55]]).log()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert apply(t, scores.to(dtype)).exp().tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("t", [1e9, 1e300])
def test_towards_infinity_it_is_uniform_over_what_is_left(t):
    p = apply(t, torch.tensor([[0.9, 0.1, 0.0]]).log()).exp()
    assert p[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), t=st.floats(0.05, 20), u=st.floats(0.05, 20))
def test_temperatures_multiply(any_scores, data, t, u):
    scores = data.draw(any_scores).double()
    twice = apply(u, apply(t, scores))
    assert torch.allclose(twice, apply(t * u, scores), rtol=1e-9, atol=1e-9)


def test_the_distribution_is_that_of_hugging_face(matrices):
    for scores in matrices.values():
        for t in (0.3, 0.7, 1.0, 2.5):
            theirs = TemperatureLogitsWarper(t)(None, scores.double()).log_softmax(dim=-1)
            ours = apply(t, scores.double())
            assert torch.equal(ours > -math.inf, theirs > -math.inf)
            assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("t", [0, -1.0, math.nan, math.inf])
def test_impossible_temperatures_are_refused(t):
    with pytest.raises(ValueError, match=r"Temperature\.t is .*Greedy\(\)"):
        Temperature(t)
