from types import SimpleNamespace

import pytest
import torch

from unspool.decode.search import Greedy
from unspool.interfaces import Clock
from unspool.objectives.cross_entropy import target_logp
from unspool.objectives.expected_reward import (
    MinimumRisk,
    Reinforce,
    RewardObjective,
    chrf,
    compute_reward,
    risk,
    surrogate,
)
from unspool.objectives.rollouts import make_prompts, rollout_batch

CLOCK = Clock(0, 1)


class Told(Reinforce):
    """Draws what it is told to."""

    said = None

    def generate(self, model, prompts, decoder, n=1):
        if isinstance(decoder, Greedy):
            return super().generate(model, prompts, decoder, n)
        return [[SimpleNamespace(tokens=self.said)] for _ in prompts]


def gradient(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([it.grad.flatten() for it in model.parameters()])


def test_surrogate_by_hand():
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss = surrogate(logp, torch.tensor([0.5, -0.25]))
    loss.backward()
    assert loss.item() == pytest.approx(0.5 - 0.5)
    assert logp.grad.tolist() == [-0.5, 0.25]  # what was better than greedy becomes more probable


def exact(model, batch, every):
    """∇ −Σ_y p(y) r(y), over all answers to all questions."""
    asked = make_prompts(model, batch, 8)
    total = 0.0
    for it in asked:
        logp = target_logp(model, rollout_batch(model, batch, [it] * len(every), every)).sum(1)
        assert logp.exp().sum().item() == pytest.approx(1.0, abs=1e-4)
        reward = torch.tensor([compute_reward(model, chrf, said, it.reference) for said in every])
        total = total - (logp.exp() * reward).sum()
    return gradient(model, total)


def test_the_expected_gradient_is_that_of_the_expected_reward(spoken, every_answer):
    model, batch = spoken
    every = every_answer(model)
    objective = Told(stretch=0.6)  # two tokens at most
    asked = make_prompts(model, batch, 8)
    found = torch.zeros(sum(it.numel() for it in model.parameters()))
    for it in asked:
        alone = rollout_batch(model, batch, [it], [it.reference])
        for said in every:
            object.__setattr__(objective, "said", said)
            with torch.no_grad():
                p = target_logp(model, rollout_batch(model, batch, [it], [said])).sum().exp()
            found += p * gradient(model, objective(model, alone, CLOCK).total)
    torch.testing.assert_close(found, exact(model, batch, every), atol=1e-5, rtol=1e-3)


def test_what_is_drawn_has_that_expectation(spoken, every_answer):
    """Many draws against the enumeration: as near as their own spread allows."""
    model, batch = spoken
    expected = exact(model, batch, every_answer(model))
    torch.manual_seed(0)
    objective = Reinforce(stretch=0.6, samples=64)
    draws = torch.stack([gradient(model, objective(model, batch, CLOCK).total) / 64 for _ in range(40)])
    error = draws.std(0) / 40**0.5
    far = (draws.mean(0) - expected).abs() > 4 * error + 1e-6
    assert far.float().mean() < 0.02
    assert torch.cosine_similarity(draws.mean(0), expected, dim=0) > 0.95


def test_stats_tell_the_rewards(spoken):
    model, batch = spoken
    found = Reinforce(reward="exact_match", samples=3)(model, batch, CLOCK)
    assert found.weight == 6.0
    assert 0.0 <= found.stats["reward"] <= 6.0
    assert found.stats["greedy_reward"] % 3 == 0.0


def test_rows_too_short_to_ask_give_nothing(transformer, rows):
    model = transformer()
    found = Reinforce(prompt=50)(model, rows(), CLOCK)
    assert (found.total.item(), found.weight) == (0.0, 0.0)
    assert not gradient(model, found.total).any()  # of every weight, 0: as an update asks for


def test_wrong_settings_are_refused(translator):
    with pytest.raises(ValueError, match="samples is 0"):
        Reinforce(samples=0)
    with pytest.raises(ValueError, match="not a known reward"):
        Reinforce(reward="blue")
    with pytest.raises(ValueError, match="does not have a tokenizer"):
        Reinforce().check(translator())
    assert Reinforce().own_batches


CLOCK_MINIMUM_RISK = Clock(0, 1)


class ToldMinimumRisk(MinimumRisk):
    """Draws all that there is."""

    every = ()

    def generate(self, model, prompts, decoder, n=1):
        return [[SimpleNamespace(tokens=said) for said in self.every] for _ in prompts]


def test_risk_by_hand():
    # p = ½, ¼, ¼ with α = 1: ½·0 + ¼·1 + ¼·0.4
    logp = torch.tensor([0.5, 0.25, 0.25]).log()
    assert risk(logp, torch.tensor([0.0, 1.0, 0.4]), 1.0).item() == pytest.approx(0.35)
    # α → 0: all alike
    assert risk(logp, torch.tensor([0.0, 1.0, 0.4]), 1e-9).item() == pytest.approx(1.4 / 3)


def gradient_minimum_risk(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([it.grad.flatten() for it in model.parameters()])


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_over_all_answers_it_is_the_exact_expectation(spoken, every_answer, alpha):
    model, batch = spoken
    every = every_answer(model)
    objective = ToldMinimumRisk(stretch=0.5, alpha=alpha)
    object.__setattr__(objective, "every", every)
    expected, total = 0.0, 0.0
    for it in make_prompts(model, batch, 8):
        generate = list(dict.fromkeys((it.reference, *every)))
        logp = target_logp(model, rollout_batch(model, batch, [it] * len(generate), generate)).sum(1)
        power = logp.exp() ** alpha
        cost = torch.tensor([1 - compute_reward(model, chrf, said, it.reference) for said in generate])
        total = total + (power / power.sum() * cost).sum()
    expected = gradient_minimum_risk(model, total)
    found = objective(model, batch, CLOCK_MINIMUM_RISK)
    assert found.total.item() == pytest.approx(total.item(), rel=1e-5)
    torch.testing.assert_close(gradient_minimum_risk(model, found.total), expected, atol=1e-5, rtol=1e-3)


def test_a_cost_that_is_the_same_for_all_teaches_nothing():
    logp = torch.randn(5, requires_grad=True)
    risk(logp, torch.full((5,), 0.7), 0.5).backward()
    torch.testing.assert_close(logp.grad, torch.zeros(5))


def test_it_is_repeatable_and_counts_questions(spoken):
    model, batch = spoken

    def found():
        torch.manual_seed(3)
        return MinimumRisk(samples=4)(model, batch, CLOCK_MINIMUM_RISK)

    one, other = found(), found()
    assert one.total.item() == other.total.item()
    assert one.weight == 2.0
    assert one.stats == {"risk": pytest.approx(one.total.item())}


def test_minimum_risk_wrong_settings_are_refused():
    for wrong in ({"samples": 1}, {"alpha": 0.0}, {"reward": "x"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            MinimumRisk(**wrong)


def test_worth_compares_texts_without_their_ends(spoken):
    model, _ = spoken
    (eos,) = model.tokenizer.eos_ids
    a, b = model.tokenizer.encode("a b")[-2:]
    assert compute_reward(model, lambda said, reference: (said, reference), [a, b, eos], [b]) == ("a b", "b")


def test_models_whose_answers_no_reward_can_read_are_refused(classifier, translator, spoken):
    model, _ = spoken
    RewardObjective().check(model)
    with pytest.raises(ValueError, match="does not have a tokenizer"):
        RewardObjective().check(translator())
    with pytest.raises(ValueError, match="Classifier predicts labels"):
        RewardObjective().check(classifier("rnn"))


def test_a_reward_must_be_there():
    assert RewardObjective().uses_reward
    with pytest.raises(ValueError, match="not a known reward"):
        RewardObjective(reward="blue")
