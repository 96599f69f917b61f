import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers.generation.logits_process import TopPLogitsWarper

from unspool.decode.transforms import TopP

P = torch.tensor([[0.05, 0.5, 0.15, 0.3]]).log()


def plain(p, logp_NV):
    """The definition: sort everything, keep a token while the mass from it on is more than 1 − p."""
    ranked_NV, token_NV = logp_NV.sort(dim=-1, descending=True, stable=True)
    from_here_NV = ranked_NV.flip(-1).softmax(dim=-1).cumsum(dim=-1).flip(-1)
    keep_NV = from_here_NV > 1 - p
    keep_NV[:, 0] = True
    return keep_NV.scatter(1, token_NV, keep_NV)


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.1, [1]), (0.49, [1]), (0.51, [1, 3]), (0.79, [1, 3]), (0.9, [1, 2, 3]), (0.96, [0, 1, 2, 3])],
)
def test_by_hand(p, kept):
    assert TopP(p).keeps(P)[0].nonzero()[:, 0].tolist() == kept


def test_a_mass_of_exactly_p_is_enough():
    assert TopP(0.5).keeps(torch.tensor([[0.5, 0.25, 0.25]]).log()).tolist() == [[True, False, False]]
    assert TopP(0.75).keeps(torch.tensor([[0.5, 0.25, 0.25]]).log()).tolist() == [[True, True, False]]


def test_of_tied_tokens_the_lower_ids_stay_as_many_as_needed():
    assert TopP(0.6).keeps(torch.zeros(1, 5)).tolist() == [[True, True, True, False, False]]
    wide = torch.zeros(1, 4000)
    wide[0, 7] = 5.0
    kept = TopP(0.5).keeps(wide)[0].nonzero()[:, 0].tolist()
    assert kept == list(range(len(kept)))
    # The mass is e⁵ + 3999 = 4147.4; half of it is e⁵ and 1,926 tokens of weight 1.
    assert len(kept) == 1927


def test_one_is_the_identity():
    scores = torch.tensor([[0.0, -1e4, -math.inf]]).log_softmax(dim=-1)
    assert TopP(1.0).keeps(scores).tolist() == [[True, True, False]]


@settings(deadline=None, max_examples=40)
@given(data=st.data(), p=st.floats(0.01, 1), q=st.floats(0.01, 1))
def test_a_larger_p_keeps_more_and_enough(any_scores, data, p, q):
    scores = data.draw(any_scores)
    fewer, more = TopP(min(p, q)).keeps(scores), TopP(max(p, q)).keeps(scores)
    assert (fewer <= more).all()
    mass = scores.double().softmax(dim=-1).masked_fill(~fewer, 0).sum(dim=-1)
    assert (mass >= min(p, q) - 1e-6).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
def test_without_a_sort_the_kept_set_is_that_of_the_definition(matrices, p):
    for name, scores in matrices.items():
        assert torch.equal(TopP(p).keeps(scores), plain(p, scores)), name


@pytest.mark.parametrize("p", [0.3, 0.7, 0.95])
def test_the_kept_probabilities_are_those_of_hugging_face(matrices, p):
    for name, scores in matrices.items():
        theirs = TopPLogitsWarper(p)(None, scores)
        ours = scores.masked_fill(~TopP(p).keeps(scores), -math.inf)
        assert torch.equal(ours.sort(dim=-1).values, theirs.sort(dim=-1).values), name
        # Which of the tokens tied at the boundary stay is left to an unstable sort there.
        last = theirs.masked_fill(theirs == -math.inf, math.inf).amin(dim=-1, keepdim=True)
        untied = (scores == last).sum(dim=-1) == (theirs == last).sum(dim=-1)
        assert torch.equal(ours[untied], theirs[untied]), name


@pytest.mark.parametrize("p", [0, -0.1, 1.1, math.nan])
def test_impossible_p_is_refused(p):
    with pytest.raises(ValueError, match=r"TopP\.p is .*0 < p ≤ 1.*Greedy"):
        TopP(p)
