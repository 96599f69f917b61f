from types import SimpleNamespace

import pytest
import torch

from unspool.interfaces import Clock
from unspool.objectives.cross_entropy import target_logp
from unspool.objectives.expected_reward import MinimumRisk, risk, worth
from unspool.objectives.rewards import chrf
from unspool.objectives.rollouts import questions, rows_of

CLOCK = Clock(0, 1)


class Told(MinimumRisk):
    """Draws all that there is."""

    every = ()

    def is_encoder_decoder(self, model, asked, search, n=1):
        return [[SimpleNamespace(tokens=said) for said in self.every] for _ in asked]


def test_risk_by_hand():
    # p = ½, ¼, ¼ with α = 1: ½·0 + ¼·1 + ¼·0.4
    logp = torch.tensor([0.5, 0.25, 0.25]).log()
    assert risk(logp, torch.tensor([0.0, 1.0, 0.4]), 1.0).item() == pytest.approx(0.35)
    # α → 0: all alike
    assert risk(logp, torch.tensor([0.0, 1.0, 0.4]), 1e-9).item() == pytest.approx(1.4 / 3)


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([it.grad.flatten() for it in model.parameters()])


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_over_all_answers_it_is_the_exact_expectation(spoken, every_answer, alpha):
    model, batch = spoken
    every = every_answer(model)
    objective = Told(stretch=0.5, alpha=alpha)
    object.__setattr__(objective, "every", every)
    expected, total = 0.0, 0.0
    for it in questions(model, batch, 8):
        answers = list(dict.fromkeys((it.wanted, *every)))
        logp = target_logp(model, rows_of(model, batch, [it] * len(answers), answers)).sum(1)
        power = logp.exp() ** alpha
        cost = torch.tensor([1 - worth(model, chrf, said, it.wanted) for said in answers])
        total = total + (power / power.sum() * cost).sum()
    expected = gradient(model, total)
    found = objective(model, batch, CLOCK)
    assert found.total.item() == pytest.approx(total.item(), rel=1e-5)
    torch.testing.assert_close(gradient(model, found.total), expected, atol=1e-5, rtol=1e-3)


def test_a_cost_that_is_the_same_for_all_teaches_nothing():
    logp = torch.randn(5, requires_grad=True)
    risk(logp, torch.full((5,), 0.7), 0.5).backward()
    torch.testing.assert_close(logp.grad, torch.zeros(5))


def test_it_is_repeatable_and_counts_questions(spoken):
    model, batch = spoken

    def found():
        torch.manual_seed(3)
        return MinimumRisk(samples=4)(model, batch, CLOCK)

    one, other = found(), found()
    assert one.total.item() == other.total.item()
    assert one.weight == 2.0
    assert one.stats == {"risk": pytest.approx(one.total.item())}


def test_wrong_settings_are_refused():
    for wrong in ({"samples": 1}, {"alpha": 0.0}, {"reward": "x"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            MinimumRisk(**wrong)
