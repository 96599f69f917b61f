import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare

import unspool as us
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import QuadraticSmoothing
from unspool.interfaces import Step
from unspool.testing import TableModel


def apply(rule, scores):
    return rule(scores, Step(scores), [Hypothesis(0, 0, ())] * len(scores))


def test_by_hand():
    scores = torch.tensor([[-1.0, -2.0, -4.0]])
    # d = 0, 1, 3: 0.25 d² = 0, 0.25, 2.25.
    assert apply(QuadraticSmoothing(0.25), scores)[0].tolist() == pytest.approx([-1.0, -1.25, -3.25])
    # c = 2: a = b = 0.125, so that 0.125 (d² + d³) = 0, 0.25, 4.5.
    assert apply(QuadraticSmoothing(0.25, 2.0), scores)[0].tolist() == pytest.approx([-1.0, -1.25, -5.5])
    # c = 3: the cube alone.
    assert apply(QuadraticSmoothing(0.25, 3.0), scores)[0].tolist() == pytest.approx([-1.0, -1.25, -7.75])


def test_near_tokens_become_more_equal_and_far_ones_rarer():
    p = torch.tensor([[0.5, 0.4, 0.099, 0.001]])
    smooth = apply(QuadraticSmoothing(0.5), p.log()).softmax(dim=-1)
    assert smooth[0, 1] / smooth[0, 0] > p[0, 1] / p[0, 0]
    assert smooth[0, 3] / smooth[0, 0] < p[0, 3] / p[0, 0]


@settings(deadline=None, max_examples=40)
@given(data=st.data(), factor=st.floats(0.01, 10), curve=st.floats(1, 3))
def test_no_token_overtakes_another_and_none_is_cut(any_scores, data, factor, curve):
    scores = data.draw(any_scores)
    before = scores.clone()
    out = apply(QuadraticSmoothing(factor, curve), scores)
    assert torch.equal(scores, before)
    assert torch.equal(out == -math.inf, scores == -math.inf)
    order = scores.argsort(dim=-1, stable=True)
    assert (out.gather(1, order).nan_to_num(neginf=-1e30).diff(dim=-1) >= 0).all()
    assert torch.equal(out.amax(dim=-1), scores.amax(dim=-1))


def test_what_is_drawn_has_the_distribution_of_the_equation():
    p = torch.tensor([0.6, 0.2, 0.15, 0.05], dtype=torch.float64)
    d = (0.6 / p).log()
    expected = (-0.3 * (0.75 * d.square() + 0.25 * d**3)).softmax(-1)  # c = 1.5
    draws = us.generate(
        TableModel(lambda row: p.tolist()),
        [0],
        us.Sample(QuadraticSmoothing(0.3, 1.5)),
        max_new_tokens=1,
        n=4000,
        seed=1,
    )
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in draws]), minlength=4)
    assert chisquare(counts.numpy(), 4000 * expected.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("arguments", [{"factor": 0}, {"factor": -1}, {"curve": 0.5}, {"curve": 3.1}])
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"QuadraticSmoothing\.(factor|curve) is"):
        QuadraticSmoothing(**arguments)
