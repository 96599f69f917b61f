import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import TypicalLogitsWarper

from unspool.decode.transforms import Typical

# H = 1.143 nats; |−log p − H| = 0.546, 0.243, 0.754, 2.363, 2.769: the second token is the most typical.
P = torch.tensor([[0.55, 0.25, 0.15, 0.03, 0.02]]).log()


def test_by_hand():
    for tau, kept in ((0.2, [1]), (0.26, [0, 1]), (0.79, [0, 1]), (0.9, [0, 1, 2]), (0.96, [0, 1, 2, 3])):
        assert Typical(tau).keeps(P)[0].nonzero()[:, 0].tolist() == kept


def test_the_most_probable_token_may_go():
    assert not Typical(0.2).keeps(P)[0, 0]


def test_one_is_the_identity():
    assert Typical(1.0).keeps(torch.tensor([[0.0, -1e4, -math.inf]])).tolist() == [[True, True, False]]


def test_all_tokens_as_far_as_the_last_one_stay():
    assert Typical(0.1).keeps(torch.zeros(1, 7)).all()


@settings(deadline=None, max_examples=30)
@given(data=st.data(), t=st.floats(0.01, 1), u=st.floats(0.01, 1))
def test_a_larger_tau_keeps_more_and_enough(any_scores, data, t, u):
    scores = data.draw(any_scores)
    fewer, more = Typical(min(t, u)).keeps(scores), Typical(max(t, u)).keeps(scores)
    assert (fewer <= more).all()
    mass = scores.double().softmax(dim=-1).masked_fill(~fewer, 0).sum(dim=-1)
    assert (mass >= min(t, u) - 1e-6).all()


@pytest.mark.parametrize("tau", [0.2, 0.5, 0.9, 0.95])
def test_the_kept_set_is_that_of_hugging_face(matrices, tau):
    for name, scores in matrices.items():
        theirs = TypicalLogitsWarper(tau)(None, scores) > -math.inf
        assert torch.equal(Typical(tau).keeps(scores), theirs), name


@pytest.mark.parametrize("tau", [0.9, 0.999, 0.999999])
@pytest.mark.parametrize("vocabulary", [300, 2048])
def test_the_last_tokens_of_a_large_mass_are_counted(tau, vocabulary):
    """As many as double precision counts: a sum in float32 lost up to a tenth of them at 0.999999."""
    scores = 4 * torch.randn(20, vocabulary, generator=torch.Generator().manual_seed(0))
    logp = scores.double().log_softmax(-1)
    entropy = -(logp * logp.exp()).sum(-1, keepdim=True)
    mass = logp.exp().gather(1, (-logp - entropy).abs().argsort(-1)).cumsum(-1)
    assert Typical(tau).keeps(scores).sum(-1).tolist() == ((mass < tau).sum(-1) + 1).tolist()


@pytest.mark.parametrize("tau", [0, -0.1, 1.1, math.nan])
def test_impossible_tau_is_refused(tau):
    with pytest.raises(ValueError, match=r"Typical\.tau is .*0 < tau ≤ 1"):
        Typical(tau)
