import copy

import pytest
import torch

from unspool.heads.kerbs import Kerbs, KerbsHeadConfig
from unspool.heads.softmax import Softmax


def test_by_hand():
    """Two senses of word 0 and one of word 1, inner products log 1, log 2 and log 5."""
    head = Kerbs(1, torch.tensor([0, 0, 1]), 2)
    head.senses_SD.data = torch.tensor([1.0, 2.0, 5.0]).log()[:, None]
    assert head(torch.ones(1)).exp().tolist() == pytest.approx([3 / 8, 5 / 8])


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-7), (torch.float32, 1e-5)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_one_sense_each_and_theta_zero_is_the_plain_softmax_in_value_and_gradient(
    dtype, close, smoothing, seed
):
    torch.manual_seed(seed)
    head, plain = KerbsHeadConfig().build(4, 7).to(dtype), Softmax(4, 7).to(dtype)
    plain.weight.data = head.senses_SD.data.clone()
    hidden = (3 * torch.randn(5, 4, dtype=dtype)).requires_grad_()
    targets, weights = torch.tensor([0, 1, 6, 3, 3]), torch.rand(5, dtype=dtype)
    same = {"rtol": close, "atol": close}
    torch.testing.assert_close(head(hidden), plain(hidden), **same)
    ours, theirs = (it.loss(hidden, targets, weights, smoothing)[0] for it in (head, plain))
    torch.testing.assert_close(ours, theirs, **same)
    outer = torch.randn(5, 7, dtype=dtype)
    for mine, other in ((ours, theirs), (head(hidden), plain(hidden))):
        by = outer if mine.dim() else None
        torch.testing.assert_close(
            torch.autograd.grad(mine, [hidden, head.senses_SD], by),
            torch.autograd.grad(other, [hidden, plain.weight], by),
            **same,
        )


@pytest.mark.parametrize("rows", [1, 6])
def test_says_the_same_with_and_without_gradients(rows):
    head, hidden = KerbsHeadConfig(senses=2.0).build(4, 7), torch.randn(rows, 4)
    torch.nn.init.normal_(head.theta_S, std=3.0)
    with torch.no_grad():
        quick = head(hidden)
    torch.testing.assert_close(quick, head(hidden).detach())


@pytest.mark.parametrize("size", [1e20, 1e30])
def test_long_vectors_have_a_loss_and_probabilities(size):
    torch.manual_seed(0)
    head, hidden = KerbsHeadConfig(senses=2.0).build(4, 7), (size * torch.randn(3, 4)).requires_grad_()
    torch.nn.init.normal_(head.theta_S)
    loss, _ = head.loss(hidden, torch.tensor([1, 2, 3]), torch.ones(3))
    loss.backward()
    assert loss.isfinite()
    assert all(it.isfinite().all() for it in (hidden.grad, head.senses_SD.grad, head.theta_S.grad))
    with torch.no_grad():
        torch.testing.assert_close(head(hidden).exp().sum(-1), torch.ones(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("theta", [0.0, -20.0, 20.0])
def test_half_precision_keeps_words_and_probabilities(dtype, theta):
    torch.manual_seed(0)
    head, hidden = KerbsHeadConfig(senses=1.5).build(4, 3000), torch.randn(3, 4)
    head.theta_S.data.fill_(theta)
    words_S, exact = head.words_S, head(hidden).detach()
    head.to(dtype)
    assert torch.equal(head.words_S, words_S)
    for grads in (True, False):
        with torch.set_grad_enabled(grads):
            logp = head(hidden.to(dtype)).detach()
        assert logp.dtype == torch.float32
        # bfloat16 knows an angle to 1/256, and θ = 20 makes 8 % of a score of that.
        torch.testing.assert_close(logp, exact, atol=0.2, rtol=0.1)
        torch.testing.assert_close(logp.exp().sum(-1), torch.ones(3))


def test_autocast_leaves_probabilities_as_they_are():
    torch.manual_seed(0)
    head, hidden = KerbsHeadConfig(senses=2.0).build(4, 7), torch.randn(3, 4)
    exact = head(hidden).detach()
    for grads in (True, False):
        with torch.set_grad_enabled(grads), torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(head(hidden).detach(), exact)


def test_senses_are_spread_evenly_over_words():
    words = KerbsHeadConfig(senses=1.5).build(4, 6).words_S
    assert torch.bincount(words).tolist() == [2, 2, 2, 1, 1, 1]


def test_what_training_has_seen_is_summed_by_word_and_by_sense():
    head = Kerbs(3, torch.tensor([0, 1, 1]), 2)
    hidden, targets = torch.randn(4, 3), torch.tensor([1, 0, 1, 0])
    weights = torch.tensor([1.0, 1.0, 2.0, 0.0])
    with torch.no_grad():
        head.loss(hidden, targets, weights)
    head.eval().loss(hidden, targets, weights)
    assert head.pop_statistics().targets.item() == 0
    head.train().loss(hidden[:2], targets[:2], weights[:2])
    head.loss(hidden[2:], targets[2:], weights[2:])
    logp, seen = head(hidden).detach(), head.pop_statistics()
    assert seen.targets.item() == 3
    torch.testing.assert_close(seen.logp_V, torch.stack([logp[1, 0], logp[0, 1] + logp[2, 1]]))
    torch.testing.assert_close(seen.usage_S[0], logp[1, 0].exp())
    torch.testing.assert_close(seen.usage_S[1:].sum(), logp[[0, 2], 1].exp().sum())
    assert head.pop_statistics().targets.item() == 0


def test_a_sense_can_change_its_word():
    head, hidden = Kerbs(3, torch.tensor([0, 1, 1]), 2), torch.randn(2, 3)
    torch.nn.init.ones_(head.theta_S)
    head.reassign(1, 0, torch.tensor([1.0, 2.0, 3.0]))
    assert head.words_S.tolist() == [0, 0, 1]
    assert head.theta_S.tolist() == [1.0, 0.0, 1.0]
    scores = torch.stack([head(hidden).detach()])  # the table follows
    fresh = Kerbs(3, torch.tensor([0, 0, 1]), 2)
    fresh.load_state_dict(head.state_dict())
    torch.testing.assert_close(fresh(hidden).detach(), scores[0])


def test_the_words_of_senses_are_saved_and_loaded():
    head, other = Kerbs(3, torch.tensor([0, 1, 1]), 2), Kerbs(3, torch.tensor([0, 1, 0]), 2)
    assert set(head.state_dict()) == {"senses_SD", "theta_S", "owners_S"}
    other(torch.randn(3))
    other.load_state_dict(head.state_dict())
    hidden = torch.randn(2, 3)
    torch.testing.assert_close(other(hidden), head(hidden))
    torch.testing.assert_close(copy.deepcopy(other)(hidden), head(hidden))


def test_fewer_senses_than_words_are_refused():
    with pytest.raises(ValueError, match=r"KerbsHeadConfig\.senses is .*1 ≤ senses ≤ 1000"):
        KerbsHeadConfig(senses=0.9)


@pytest.mark.parametrize("senses", [float("inf"), 1e9])
def test_more_senses_than_anybody_needs_are_refused(senses):
    with pytest.raises(ValueError, match=r"KerbsHeadConfig\.senses is .*1 ≤ senses ≤ 1000"):
        KerbsHeadConfig(senses=senses)


def test_can_be_built_without_memory_and_filled_from_floats():
    """As run folders are read: on the meta device, then every tensor assigned in single precision."""
    head = KerbsHeadConfig(senses=1.5).build(3, 4)
    with torch.device("meta"):
        empty = KerbsHeadConfig(senses=1.5).build(3, 4)
    empty.load_state_dict({name: it.to(torch.float32) for name, it in head.state_dict().items()}, assign=True)
    hidden = torch.randn(2, 3)
    torch.testing.assert_close(empty(hidden), head(hidden))


def test_without_a_kernel_theta_does_not_learn():
    head, fixed = (
        KerbsHeadConfig(senses=1.5).build(3, 4),
        KerbsHeadConfig(senses=1.5, kernel=False).build(3, 4),
    )
    fixed.load_state_dict(head.state_dict())
    hidden, targets, weights = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0]), torch.ones(5)
    for each in (head, fixed):
        each.loss(hidden, targets, weights)[0].backward()
    assert head.theta_S.grad is not None
    assert fixed.theta_S.grad is None
    torch.testing.assert_close(fixed.senses_SD.grad, head.senses_SD.grad)
    plain = torch.logsumexp((hidden @ fixed.senses_SD.T)[:, [0, 4]], dim=1)  # the two senses of word 0
    everything = torch.logsumexp(hidden @ fixed.senses_SD.T, dim=1)
    torch.testing.assert_close(fixed(hidden)[:, 0], plain - everything)


def test_the_senses_of_a_word_begin_close_to_each_other():
    head = KerbsHeadConfig(senses=2.5).build(64, 10)
    senses_JD = head.senses_SD.detach()[head.words_S == 3]
    assert len(senses_JD) == 3
    cos = torch.nn.functional.cosine_similarity(senses_JD[:1], senses_JD[1:])
    assert (cos > 0.75).all()  # 1 / √(1 + 0.6²) = 0.86 on average
    assert (cos < 0.95).all()
    others = head.senses_SD.detach()[:10]
    assert (torch.nn.functional.cosine_similarity(others[3], others[torch.arange(10) != 3]).abs() < 0.7).all()
