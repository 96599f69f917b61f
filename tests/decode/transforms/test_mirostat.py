import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from unspool.decode.hypothesis import Hypothesis
from unspool.decode.transforms import Mirostat
from unspool.interfaces import Step


def path(*bits):
    scores = tuple(-b * math.log(2) for b in bits)
    return Hypothesis(0, 0, (), tuple(range(len(bits))), scores, scores)


def kept(rule, p, *paths):
    logp = torch.tensor([p] * len(paths)).log()
    return (rule(logp, Step(logp), paths) > -math.inf).tolist()


def test_by_hand():
    # μ₁ = 2τ = 2 bits. ½ has 1 bit, 0.3 has 1.74, 0.2 has 2.32.
    assert kept(Mirostat(tau=1.0), [0.5, 0.3, 0.2], path()) == [[True, True, False]]
    # After a token of 3 bits, at lr = 0.5: μ = 2 − 0.5 · (3 − 1) = 1; after one of 0 bits: 2.5.
    rule = Mirostat(tau=1.0, lr=0.5)
    assert kept(rule, [0.501, 0.3, 0.199], path(3), path(0)) == [[True, False, False], [True, True, True]]


def test_the_best_stays_where_even_it_is_too_surprising():
    assert kept(Mirostat(tau=0.01), [0.4, 0.4, 0.2], path()) == [[True, True, False]]


@settings(max_examples=50)
@given(st.lists(st.floats(0, 12), max_size=30), st.floats(0.5, 8), st.floats(0, 1))
def test_mu_is_the_feedback_loop_step_by_step(bits, tau, lr):
    mu = 2 * tau
    for surprise in bits:
        mu -= lr * (surprise - tau)
    assert Mirostat(tau, lr).mu(path(*bits)) == pytest.approx(mu, abs=1e-9)


def test_it_steers_the_surprise_of_a_text_to_tau():
    generator = torch.Generator().manual_seed(0)
    logp = torch.log_softmax(-1.1 * torch.arange(1, 2001, dtype=torch.float64).log(), dim=-1)[None]
    rule, walked = Mirostat(tau=4.0), path()
    for _ in range(400):
        scores = rule(logp, Step(logp), [walked]).log_softmax(dim=-1)
        token = int(torch.multinomial(scores.exp(), 1, generator=generator))
        walked = Hypothesis(0, 0, (), (*walked.tokens, token), (), (*walked.scores, float(scores[0, token])))
    mean = -sum(walked.scores) / len(walked.scores) / math.log(2)
    assert mean == pytest.approx(4.0, abs=0.2)


@pytest.mark.parametrize("arguments", [{"tau": 0}, {"tau": -1}, {"lr": -0.1}, {"tau": math.inf}])
def test_impossible_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match=r"Mirostat\.(tau|lr) is"):
        Mirostat(**arguments)
