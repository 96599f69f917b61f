import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities, Clock
from unspool.training.hooks import HOOKS, KerbsReallocate
from unspool.training.loop import training_loop


class Model(nn.Module, Abilities):
    context = None

    def __init__(self, words):
        super().__init__()
        self.head = Kerbs(4, torch.tensor(words), max(words) + 1)

    @property
    def sense_head(self):
        return self.head


class Memory:
    """As much of an optimizer as the hook looks at."""

    def __init__(self, model):
        self.state = {it: {"m": torch.ones_like(it), "t": torch.tensor(3.0)} for it in model.parameters()}


def hook_for(model, logp, usage, **settings):
    hook = KerbsReallocate(**settings).build(model)
    hook.restore({"logp_V": torch.tensor(logp), "usage_S": torch.tensor(usage)})
    return hook


def test_averages_by_hand():
    model = Model([0, 1, 1]).double()
    hook = hook_for(model, [-1.0, 0.0], [0.5, 0.0, 0.0], rate=0.25, every=10)
    hidden, targets = torch.randn(4, 4, dtype=torch.float64), torch.tensor([1, 1, 0, 1])
    model.head.loss(hidden, targets, torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    logp = model.head(hidden).detach()
    hook(model, Memory(model), None, Clock(1, 100))
    assert hook.logp_V[0].item() == pytest.approx(-0.75 + 0.25 * logp[2, 0].item() / 3)
    assert hook.logp_V[1].item() == pytest.approx(0.25 * (logp[0, 1] + logp[1, 1]).item() / 3)
    assert hook.usage_S[0].item() == pytest.approx(0.375 + 0.25 * logp[2, 0].exp().item() / 3)
    hook(model, Memory(model), None, Clock(2, 100))
    assert hook.usage_S[0].item() == pytest.approx(0.75 * (0.375 + 0.25 * logp[2, 0].exp().item() / 3))


def test_the_least_used_sense_goes_to_the_worst_predicted_word():
    """Sense 4 of word 2 is used least; word 0 is predicted worst. Word 1 was never seen."""
    model = Model([0, 1, 1, 2, 2])
    hook = hook_for(model, [-0.9, 0.0, -0.3], [0.5, 0.3, 0.2, 0.2, 0.1], share=0.1)
    assert hook.moves(model.head) == [(4, 0)]


def test_no_word_loses_its_last_sense_or_gets_more_than_the_most():
    model = Model([0, 0, 0, 1, 2, 2])
    usage = [0.1, 0.1, 0.1, 0.0, 0.3, 0.4]
    assert hook_for(model, [-0.9, -0.5, -0.1], usage, share=0.1, most=3).moves(model.head) == [(0, 1)]
    assert hook_for(model, [-0.9, -0.5, -0.1], usage, share=0.0, most=1).moves(model.head) == []


def test_a_moved_sense_is_a_perturbed_copy_without_a_past():
    model = Model([0, 1, 1, 0])
    memory = Memory(model)
    nn.init.constant_(model.head.theta_S, 2.0)
    hook = hook_for(model, [-0.9, -0.1], [0.1, 0.4, 0.05, 0.7], every=5, rate=1e-9, noise=0.01)
    hook(model, memory, None, Clock(4, 100))
    assert model.head.words_S.tolist() == [0, 1, 1, 0]
    before = model.head.senses_SD.detach().clone()
    hook(model, memory, None, Clock(5, 100))
    head = model.head
    assert head.words_S.tolist() == [0, 1, 0, 0]
    assert head.theta_S.tolist() == [2.0, 2.0, 0.0, 2.0]
    distance = (head.senses_SD[2] - before[3]).norm() / before[3].norm()
    assert 0 < distance < 0.05
    assert torch.equal(head.senses_SD[[0, 1, 3]], before[[0, 1, 3]])
    assert hook.usage_S[2].item() == pytest.approx((0.1 + 0.4 + 0.05 + 0.7) / 4)
    for parameter, remembered in memory.state.items():
        assert not remembered["m"][2].any()
        assert remembered["m"][[0, 1, 3]].all()
        assert remembered["t"] == 3.0
        assert len(parameter) == 4


@settings(deadline=None, max_examples=50)
@given(
    extra=st.lists(st.integers(0, 5), min_size=1, max_size=14),
    logp=st.lists(st.floats(-5, 0, width=32), min_size=6, max_size=6),
    seed=st.integers(0, 999),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    most=st.integers(1, 5),
)
def test_whatever_the_averages_are_no_word_is_left_without_a_sense(extra, logp, seed, share, most):
    """Twenty reallocations, each after averages of any kind: senses only move, and probabilities sum to 1."""
    dice = torch.Generator().manual_seed(seed)
    model = Model([*range(6), *extra])
    head, memory, size = model.head, Memory(model), 6 + len(extra)
    nn.init.normal_(head.theta_S, std=5.0, generator=dice)
    hidden = 3 * torch.randn(5, 4, generator=dice)
    began = torch.bincount(head.words_S, minlength=6)
    hook = KerbsReallocate(every=1, rate=1e-6, share=share, most=most).build(model)
    for update in range(1, 21):
        usage = torch.rand(size, generator=dice) * (torch.rand(size, generator=dice) < 0.7)
        hook.restore({"logp_V": torch.tensor(logp)[torch.randperm(6, generator=dice)], "usage_S": usage})
        hook(model, memory, None, Clock(update, 20))
        counts = torch.bincount(head.words_S, minlength=6)
        assert counts.min() >= 1
        assert (counts <= began.clamp_min(most)).all()
        assert len(head.words_S) == size
        torch.testing.assert_close(head(hidden).exp().sum(-1), torch.ones(5))


def test_a_real_optimizer_forgets_a_moved_sense_and_nothing_else():
    model = Model([0, 1, 1, 0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        loss, _ = model.head.loss(torch.randn(6, 4), torch.tensor([0, 1] * 3), torch.ones(6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.head.pop_statistics()
    moments = [optimizer.state[it][name] for it in model.parameters() for name in ("exp_avg", "exp_avg_sq")]
    before = [it.clone() for it in moments]
    assert all(it[2].abs().sum() > 0 for it in moments)
    hook = hook_for(model, [-0.9, -0.1], [0.1, 0.4, 0.05, 0.7], every=1, rate=1e-9)
    hook(model, optimizer, None, Clock(1, 100))
    assert model.head.words_S.tolist() == [0, 1, 0, 0]
    for now, then in zip(moments, before, strict=True):
        assert not now[2].any()
        assert torch.equal(now[[0, 1, 3]], then[[0, 1, 3]])


def kerbs_run(tiny):
    torch.manual_seed(4)
    run = tiny()
    run = tiny(model=_with_kerbs(run.model))
    run.hooks = [KerbsReallocate(every=2, rate=0.3, share=0.2).build(run.model)]
    return run


def _with_kerbs(model):
    model.head = Kerbs(8, torch.arange(22) % 11, 11)
    return model


def test_a_resumed_run_is_bit_equal_and_keeps_the_number_of_senses(tiny):
    whole = kerbs_run(tiny)
    seen = [it.loss for it in training_loop(whole)]
    first = kerbs_run(tiny)
    steps = training_loop(first)
    losses = [next(steps).loss for _ in range(5)]
    second = kerbs_run(tiny)
    kept = {name: it.clone() for name, it in first.weights().items()}
    second.restore(kept, {name: it.clone() for name, it in first.training_state().items()}, first.progress)
    losses += [it.loss for it in training_loop(second)]
    assert losses == seen
    words = whole.model.head.words_S
    assert torch.equal(second.model.head.words_S, words)
    assert len(words) == 22
    counts = torch.bincount(words, minlength=11)
    assert counts.max() > 2
    assert counts.min() >= 1


def test_another_head_and_impossible_settings_are_refused(tiny):
    with pytest.raises(TypeError, match=r'set model\.head\.kind to "kerbs"'):
        KerbsReallocate().build(tiny().model)
    with pytest.raises(ValueError, match="every is 0"):
        KerbsReallocate(every=0)
    with pytest.raises(ValueError, match=r"rate is 0\.0"):
        KerbsReallocate(rate=0.0)
    with pytest.raises(ValueError, match=r"share is 1\.0, .* ≤ 0\.5"):
        KerbsReallocate(share=1.0)
    with pytest.raises(ValueError, match=r"noise is inf, .* ≤ 10"):
        KerbsReallocate(noise=float("inf"))
    with pytest.raises(ValueError, match=r"set model\.head\.senses above 1"):
        KerbsReallocate().build(Model([0, 1, 2]))


def test_recipes_know_it():
    assert HOOKS["kerbs_reallocate"] is KerbsReallocate
