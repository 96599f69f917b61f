from types import SimpleNamespace

import pytest
import torch

from unspool.decode.search import Greedy
from unspool.interfaces import Clock
from unspool.objectives.cross_entropy import target_logp
from unspool.objectives.expected_reward import Reinforce, surrogate, worth
from unspool.objectives.rewards import chrf
from unspool.objectives.rollouts import questions, rows_of

CLOCK = Clock(0, 1)


class Told(Reinforce):
    """Draws what it is told to."""

    said = None

    def is_encoder_decoder(self, model, asked, search, n=1):
        if isinstance(search, Greedy):
            return super().answers(model, asked, search, n)
        return [[SimpleNamespace(tokens=self.said)] for _ in asked]


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
    asked = questions(model, batch, 8)
    total = 0.0
    for it in asked:
        logp = target_logp(model, rows_of(model, batch, [it] * len(every), every)).sum(1)
        assert logp.exp().sum().item() == pytest.approx(1.0, abs=1e-4)
        reward = torch.tensor([worth(model, chrf, said, it.wanted) for said in every])
        total = total - (logp.exp() * reward).sum()
    return gradient(model, total)


def test_the_expected_gradient_is_that_of_the_expected_reward(spoken, every_answer):
    model, batch = spoken
    every = every_answer(model)
    objective = Told(stretch=0.6)  # two tokens at most
    asked = questions(model, batch, 8)
    found = torch.zeros(sum(it.numel() for it in model.parameters()))
    for it in asked:
        alone = rows_of(model, batch, [it], [it.wanted])
        for said in every:
            object.__setattr__(objective, "said", said)
            with torch.no_grad():
                p = target_logp(model, rows_of(model, batch, [it], [said])).sum().exp()
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
    with pytest.raises(ValueError, match="samples=0"):
        Reinforce(samples=0)
    with pytest.raises(ValueError, match="not a known reward"):
        Reinforce(reward="blue")
    with pytest.raises(ValueError, match="no tokenizer"):
        Reinforce().check(translator())
    assert Reinforce().own_batches
