import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare

import unspool as us
from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import AdaptiveP, Mirostat
from unspool.interfaces import Step
from unspool.testing import TableModel


def mirostat_path(*bits):
    scores = tuple(-b * math.log(2) for b in bits)
    return Hypothesis(0, 0, (), tuple(range(len(bits))), scores, scores)


def kept(rule, p, *paths):
    logp = torch.tensor([p] * len(paths)).log()
    return (rule(logp, Step(logp), paths) > -math.inf).tolist()


def test_mirostat_by_hand():
    # μ₁ = 2τ = 2 bits. ½ has 1 bit, 0.3 has 1.74, 0.2 has 2.32.
    assert kept(Mirostat(tau=1.0), [0.5, 0.3, 0.2], mirostat_path()) == [[True, True, False]]
    # After a token of 3 bits, at lr = 0.5: μ = 2 − 0.5 · (3 − 1) = 1; after one of 0 bits: 2.5.
    rule = Mirostat(tau=1.0, lr=0.5)
    assert kept(rule, [0.501, 0.3, 0.199], mirostat_path(3), mirostat_path(0)) == [
        [True, False, False],
        [True, True, True],
    ]


def test_the_best_stays_where_even_it_is_too_surprising():
    assert kept(Mirostat(tau=0.01), [0.4, 0.4, 0.2], mirostat_path()) == [[True, True, False]]


@settings(max_examples=50)
@given(st.lists(st.floats(0, 12), max_size=30), st.floats(0.5, 8), st.floats(0, 1))
def test_mu_is_the_feedback_loop_step_by_step(bits, tau, lr):
    mu = 2 * tau
    for surprise in bits:
        mu -= lr * (surprise - tau)
    assert Mirostat(tau, lr).mu(mirostat_path(*bits)) == pytest.approx(mu, abs=1e-9)


def test_it_steers_the_surprise_of_a_text_to_tau():
    generator = torch.Generator().manual_seed(0)
    logp = torch.log_softmax(-1.1 * torch.arange(1, 2001, dtype=torch.float64).log(), dim=-1)[None]
    rule, walked = Mirostat(tau=4.0), mirostat_path()
    for _ in range(400):
        scores = rule(logp, Step(logp), [walked]).log_softmax(dim=-1)
        token = int(torch.multinomial(scores.exp(), 1, generator=generator))
        walked = Hypothesis(0, 0, (), (*walked.tokens, token), (), (*walked.scores, float(scores[0, token])))
    mean = -sum(walked.scores) / len(walked.scores) / math.log(2)
    assert mean == pytest.approx(4.0, abs=0.2)


@pytest.mark.parametrize("arguments", [{"tau": 0}, {"tau": -1}, {"lr": -0.1}, {"tau": math.inf}])
def test_mirostat_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"Mirostat\.(tau|lr) is"):
        Mirostat(**arguments)


def adaptive_p_path(*probabilities):
    logps = tuple(math.log(p) for p in probabilities)
    return Hypothesis(0, 0, (), tuple(range(len(logps))), logps, logps)


def apply(rule, p, *paths):
    logp = torch.tensor([p] * len(paths)).log()
    return rule(logp, Step(logp), paths)


def test_adaptive_p_by_hand():
    # At the beginning t̂ = t = ½: d = 0, 2/3 and 1, so that 10 d²/(1 + d) = 0, 8/3 and 5.
    scores = apply(AdaptiveP(0.5), [0.5, 0.3, 0.2], adaptive_p_path())
    assert scores[0].tolist() == pytest.approx([5.0, 5 - 8 / 3, 0.0], abs=1e-5)


def test_the_target_gives_way_to_what_was_written():
    # m = 0.9 · 0.5 + 0.1 · 1 = 0.55, t̂ = 0.45; then m = 0.9 · 0.55 + 0.1 · 0.05 = 0.5.
    assert AdaptiveP(0.5).adapted_target(adaptive_p_path(1.0)) == pytest.approx(0.45)
    assert AdaptiveP(0.5).adapted_target(adaptive_p_path(1.0, 0.05)) == pytest.approx(0.5)
    assert AdaptiveP(0.2, decay=0.0).adapted_target(adaptive_p_path(1.0)) == 0
    assert AdaptiveP(0.9, decay=0.0).adapted_target(adaptive_p_path(0.5)) == 1


@settings(max_examples=50)
@given(st.lists(st.floats(0.001, 1), max_size=30), st.floats(0, 1), st.floats(0, 0.99))
def test_the_target_is_that_of_a_running_sum_over_its_weights(probabilities, target, decay):
    total, weight = target / (1 - decay), 1 / (1 - decay)
    for p in probabilities:
        total, weight = p + decay * total, 1 + decay * weight
    expected = min(max(2 * target - total / weight, 0), 1)
    assert AdaptiveP(target, decay).adapted_target(adaptive_p_path(*probabilities)) == pytest.approx(
        expected, abs=1e-9
    )


@pytest.mark.parametrize("target", [0.15, 0.25, 0.45])
def test_it_steers_the_average_probability_of_a_text(target):
    """The average comes nearer to the target than the distribution around a target that stays."""
    p = torch.tensor([0.55, 0.2, 0.1, 0.06, 0.04, 0.03, 0.02])
    out = us.generate(
        TableModel(lambda row: p.tolist()), [0], us.Sample(AdaptiveP(target)), max_new_tokens=600, seed=0
    )
    average = sum(map(math.exp, out.logps)) / 600
    unmoved = float((apply(AdaptiveP(target), p.tolist(), adaptive_p_path()).softmax(dim=-1) * p).sum())
    assert abs(average - target) < 0.75 * abs(unmoved - target)


def test_samples_follow_the_equation():
    p = torch.tensor([0.5, 0.25, 0.15, 0.1])
    d = (p - 0.3).abs() / 0.3
    expected = (5 - 10 * d.square() / (1 + d)).softmax(-1)
    draws = us.generate(
        TableModel(lambda row: p.tolist()), [0], us.Sample(AdaptiveP(0.3)), max_new_tokens=1, n=4000, seed=1
    )
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in draws]), minlength=4)
    assert (
        chisquare(counts.numpy(), 4000 * expected.double().numpy() / expected.double().sum().item()).pvalue
        > 1e-3
    )


def test_tokens_that_were_cut_stay_cut_and_the_input_is_untouched():
    logp = torch.tensor([[0.6, 0.4, 0.0]]).log()
    before = logp.clone()
    out = AdaptiveP(0.0)(logp, Step(logp), [adaptive_p_path()])
    assert out[0, 2] == -math.inf
    assert torch.equal(logp, before)


@pytest.mark.parametrize(
    "arguments", [{"target": -0.1}, {"target": 1.1}, {"decay": 1.0}, {"decay": math.nan}]
)
def test_adaptive_p_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"AdaptiveP\.(target|decay) is"):
        AdaptiveP(**arguments)
