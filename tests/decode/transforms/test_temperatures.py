import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare
from transformers.generation.logits_process import TemperatureLogitsWarper

import unspool as us
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import DynamicTemperature, QuadraticSmoothing, Temperature
from unspool.interfaces import Step
from unspool.testing import TableModel


def temperature_apply(t, scores):
    return Temperature(t)(scores, Step(scores), [Hypothesis(0, 0, ())] * len(scores)).log_softmax(dim=-1)


def test_temperature_by_hand():
    # 0.64, 0.32, 0.04 to the power ½: 0.8, 0.5657, 0.2, over their sum 1.5657.
    p = temperature_apply(2.0, torch.tensor([[0.64, 0.32, 0.04]]).log()).exp()
    assert p[0].tolist() == pytest.approx([0.51096, 0.36130, 0.12774], abs=1e-5)


def test_one_is_the_identity():
    scores = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert torch.equal(Temperature(1.0)(scores, Step(scores), [Hypothesis(0, 0, ())]), scores)


@pytest.mark.parametrize("t", [1e-5, 1e-9, 1e-40, 5e-324])
def test_towards_zero_it_is_the_argmax(t):
    scores = torch.tensor([[0.3, 0.4, 0.3], [0.0, 0.45, 0.55]]).log()
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert temperature_apply(t, scores.to(dtype)).exp().tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize("t", [1e9, 1e300])
def test_towards_infinity_it_is_uniform_over_what_is_left(t):
    p = temperature_apply(t, torch.tensor([[0.9, 0.1, 0.0]]).log()).exp()
    assert p[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), t=st.floats(0.05, 20), u=st.floats(0.05, 20))
def test_temperatures_multiply(any_scores, data, t, u):
    scores = data.draw(any_scores).double()
    twice = temperature_apply(u, temperature_apply(t, scores))
    assert torch.allclose(twice, temperature_apply(t * u, scores), rtol=1e-9, atol=1e-9)


def test_the_distribution_is_that_of_hugging_face(matrices):
    for scores in matrices.values():
        for t in (0.3, 0.7, 1.0, 2.5):
            theirs = TemperatureLogitsWarper(t)(None, scores.double()).log_softmax(dim=-1)
            ours = temperature_apply(t, scores.double())
            assert torch.equal(ours > -math.inf, theirs > -math.inf)
            assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("t", [0, -1.0, math.nan, math.inf])
def test_impossible_temperatures_are_refused(t):
    with pytest.raises(ValueError, match=r"Temperature\.t is .*Greedy\(\)"):
        Temperature(t)


def dynamic_temperature_apply(rule, scores, log_norm=None):
    return rule(scores, Step(scores, log_norm_N=log_norm), [Hypothesis(0, 0, ())] * len(scores))


def test_dynamic_temperature_by_hand():
    # H(½, ¼, ¼) = 1.0397 and log 3 = 1.0986, a share of 0.94639: T = 0.5 + 1.5 · 0.94639 = 1.91959.
    scores = torch.tensor([[0.5, 0.25, 0.25]]).log()
    assert DynamicTemperature(0.5, 2.0).temperatures(scores).item() == pytest.approx(1.91959, abs=1e-5)
    p = dynamic_temperature_apply(DynamicTemperature(0.5, 2.0), scores).softmax(dim=-1)
    # 2^(1/1.91959) = 1.43487.
    assert (p[0, 0] / p[0, 1]).item() == pytest.approx(1.43487, abs=1e-4)


def test_a_sure_row_has_the_low_one_and_a_uniform_one_the_high_one():
    scores = torch.tensor([[0.0, -80.0, -90.0], [-1.0, -1.0, -1.0], [-1.0, -1.0, -math.inf]])
    assert DynamicTemperature(0.4, 1.6).temperatures(scores)[:, 0].tolist() == pytest.approx([0.4, 1.6, 1.6])


def test_a_row_of_one_token_stays_as_it_is():
    out = dynamic_temperature_apply(DynamicTemperature(), torch.tensor([[-math.inf, 0.0]]))
    assert out.softmax(dim=-1).tolist() == [[0.0, 1.0]]


def test_a_larger_exponent_is_colder():
    scores = torch.tensor([[0.7, 0.2, 0.1]]).log()
    found = [DynamicTemperature(0.5, 1.5, exponent).temperatures(scores).item() for exponent in (0.5, 1, 2)]
    assert found == sorted(found, reverse=True)
    share = -sum(p * math.log(p) for p in (0.7, 0.2, 0.1)) / math.log(3)
    assert found[2] == pytest.approx(0.5 + share**2, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), t=st.floats(0.05, 20))
def test_of_equal_ends_it_is_temperature(any_scores, data, t):
    scores, log_norm = data.draw(any_scores).double(), None
    for log_norm in (None, torch.full((len(scores),), 2.5, dtype=torch.float64)):
        ours = dynamic_temperature_apply(DynamicTemperature(t, t), scores, log_norm)
        theirs = dynamic_temperature_apply(Temperature(t), scores, log_norm) if t != 1 else scores
        assert torch.allclose(ours.softmax(-1), theirs.softmax(-1), atol=1e-9)


def test_dynamic_temperature_what_is_drawn_has_the_distribution_of_the_equation():
    p = torch.tensor([0.6, 0.2, 0.15, 0.05], dtype=torch.float64)
    T = 0.5 + 2.0 * (-(p * p.log()).sum() / math.log(4)) ** 2
    expected = p ** (1 / T) / (p ** (1 / T)).sum()
    draws = us.generate(
        TableModel(lambda row: p.tolist()),
        [0],
        us.Sample(DynamicTemperature(0.5, 2.5, 2.0)),
        max_new_tokens=1,
        n=4000,
        seed=1,
    )
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in draws]), minlength=4)
    assert chisquare(counts.numpy(), 4000 * expected.numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    "arguments", [{"low": 0}, {"low": 2.0, "high": 1.0}, {"exponent": 0}, {"high": math.inf}]
)
def test_dynamic_temperature_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"DynamicTemperature\.(low|high|exponent) is"):
        DynamicTemperature(**arguments)


def quadratic_smoothing_apply(rule, scores):
    return rule(scores, Step(scores), [Hypothesis(0, 0, ())] * len(scores))


def test_quadratic_smoothing_by_hand():
    scores = torch.tensor([[-1.0, -2.0, -4.0]])
    # d = 0, 1, 3: 0.25 d² = 0, 0.25, 2.25.
    assert quadratic_smoothing_apply(QuadraticSmoothing(0.25), scores)[0].tolist() == pytest.approx(
        [-1.0, -1.25, -3.25]
    )


def test_near_tokens_become_more_equal_and_far_ones_rarer():
    p = torch.tensor([[0.5, 0.4, 0.099, 0.001]])
    smooth = quadratic_smoothing_apply(QuadraticSmoothing(0.5), p.log()).softmax(dim=-1)
    assert smooth[0, 1] / smooth[0, 0] > p[0, 1] / p[0, 0]
    assert smooth[0, 3] / smooth[0, 0] < p[0, 3] / p[0, 0]


@settings(deadline=None, max_examples=40)
@given(data=st.data(), factor=st.floats(0.01, 10))
def test_no_token_overtakes_another_and_none_is_cut(any_scores, data, factor):
    scores = data.draw(any_scores)
    before = scores.clone()
    out = quadratic_smoothing_apply(QuadraticSmoothing(factor), scores)
    assert torch.equal(scores, before)
    assert torch.equal(out == -math.inf, scores == -math.inf)
    order = scores.argsort(dim=-1, stable=True)
    assert (out.gather(1, order).nan_to_num(neginf=-1e30).diff(dim=-1) >= 0).all()
    assert torch.equal(out.amax(dim=-1), scores.amax(dim=-1))


def test_quadratic_smoothing_what_is_drawn_has_the_distribution_of_the_equation():
    p = torch.tensor([0.6, 0.2, 0.15, 0.05], dtype=torch.float64)
    d = (0.6 / p).log()
    expected = (-0.3 * d.square()).softmax(-1)
    draws = us.generate(
        TableModel(lambda row: p.tolist()),
        [0],
        us.Sample(QuadraticSmoothing(0.3)),
        max_new_tokens=1,
        n=4000,
        seed=1,
    )
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in draws]), minlength=4)
    assert chisquare(counts.numpy(), 4000 * expected.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("arguments", [{"factor": 0}, {"factor": -1}])
def test_quadratic_smoothing_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"QuadraticSmoothing\.factor is"):
        QuadraticSmoothing(**arguments)
