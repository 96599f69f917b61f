import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare

import unspool as us
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import DynamicTemperature, Temperature
from unspool.interfaces import Step
from unspool.testing import TableModel


def apply(rule, scores, log_norm=None):
    return rule(scores, Step(scores, log_norm_N=log_norm), [Hypothesis(0, 0, ())] * len(scores))


def test_by_hand():
    # H(½, ¼, ¼) = 1.0397 and log 3 = 1.0986, a share of 0.94639: T = 0.5 + 1.5 · 0.94639 = 1.91959.
    scores = torch.tensor([[0.5, 0.25, 0.25]]).log()
    assert DynamicTemperature(0.5, 2.0).temperatures(scores).item() == pytest.approx(1.91959, abs=1e-5)
    p = apply(DynamicTemperature(0.5, 2.0), scores).softmax(dim=-1)
    # 2^(1/1.91959) = 1.43487.
    assert (p[0, 0] / p[0, 1]).item() == pytest.approx(1.43487, abs=1e-4)


def test_a_sure_row_has_the_low_one_and_a_uniform_one_the_high_one():
    scores = torch.tensor([[0.0, -80.0, -90.0], [-1.0, -1.0, -1.0], [-1.0, -1.0, -math.inf]])
    assert DynamicTemperature(0.4, 1.6).temperatures(scores)[:, 0].tolist() == pytest.approx([0.4, 1.6, 1.6])


def test_a_row_of_one_token_stays_as_it_is():
    out = apply(DynamicTemperature(), torch.tensor([[-math.inf, 0.0]]))
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
        ours = apply(DynamicTemperature(t, t), scores, log_norm)
        theirs = apply(Temperature(t), scores, log_norm) if t != 1 else scores
        assert torch.allclose(ours.softmax(-1), theirs.softmax(-1), atol=1e-9)


def test_what_is_drawn_has_the_distribution_of_the_equation():
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
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"DynamicTemperature\.(low|high|exponent) is"):
        DynamicTemperature(**arguments)
