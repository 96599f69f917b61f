import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare

import unspool as us
from unspool.decode.transforms import MinK
from unspool.testing import TableModel


def ranks(row, tau):
    """How many ranks stay, by the definition, one step after the other."""
    found = sorted((x for x in row if x > -math.inf), reverse=True)
    spread = found[0] - found[-1]
    if spread == 0:
        return len(found)
    cliff, steepest = 1, -1.0
    for i in range(1, len(found)):
        decay = (found[i - 1] - found[i]) / (i * spread)
        if decay > steepest:
            cliff, steepest = i, decay
    return min(max(cliff, math.floor(tau / spread)), len(found))


def test_by_hand():
    # Steps 0.5, 6, 0.5, 2 over their ranks: 0.5, 3, 0.17, 0.5. The cliff is after the second.
    row = torch.tensor([[0.0, -0.5, -6.5, -7.0, -9.0]])
    assert MinK(0).keeps(row).tolist() == [[True, True, False, False, False]]
    # R = 9: τ = 27 keeps three at least, and τ = 26.9 two.
    assert MinK(27).keeps(row).sum() == 3
    assert MinK(26.9).keeps(row).sum() == 2


def test_an_early_step_outweighs_a_larger_one_below():
    row = torch.tensor([[0.0, -2.0, -2.5, -8.0]])  # 2, 0.25, 1.83
    assert MinK(0).keeps(row).tolist() == [[True, False, False, False]]


def test_a_uniform_row_and_a_single_token_stay():
    rows = torch.tensor([[-1.0, -1.0, -1.0], [-1.0, -1.0, -math.inf], [-math.inf, 0.0, -math.inf]])
    expected = [[True, True, True], [True, True, False], [False, True, False]]
    assert MinK().keeps(rows).tolist() == MinK(0).keeps(rows).tolist() == expected


@settings(deadline=None, max_examples=80)
@given(data=st.data(), tau=st.floats(0, 60))
def test_the_kept_set_is_the_definition(any_scores, data, tau):
    scores = data.draw(any_scores)
    kept = MinK(tau).keeps(scores)
    for row, mask in zip(scores.tolist(), kept, strict=True):
        assert int(mask.sum()) == ranks(row, tau)
        if not mask.all():
            assert torch.tensor(row)[mask].min() >= torch.tensor(row)[~mask].max()


def test_large_vocabularies_keep_the_definition(matrices):
    for name in ("600 plain", "600 cut", "5000 ties", "5000 plain", "50000 plain", "50000 cut"):
        scores = matrices[name][:14]
        for tau in (0.0, 3.0, 5000.0):
            counts = MinK(tau).keeps(scores).sum(dim=-1).tolist()
            assert counts == [ranks(row, tau) for row in scores.tolist()]


def test_a_cliff_among_many_equals_is_found_where_the_first_hundreds_do_not_show_it():
    row = torch.zeros(1, 3000)
    row[0, 1000:] = -50.0  # the only step, at rank 1000
    assert MinK(0).keeps(row.log_softmax(dim=-1)).sum() == 1000


@settings(deadline=None, max_examples=40)
@given(data=st.data(), t=st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_the_cliff_does_not_move_with_the_temperature(any_scores, data, t):
    scores = data.draw(any_scores).double()
    assert torch.equal(MinK(0).keeps(scores), MinK(0).keeps(scores / t))


def test_what_is_drawn_has_the_distribution_of_what_is_kept():
    p = [0.4, 0.35, 0.2, 0.03, 0.02]
    draws = us.generate(TableModel(lambda row: p), [0], us.Sample(MinK(0)), max_new_tokens=1, n=4000, seed=1)
    counts = torch.bincount(torch.tensor([out.tokens[0] for out in draws]), minlength=5)
    # Steps .134, .56, 1.897, .405 over ranks: .134, .28, .632, .101: three stay.
    assert counts[3:].tolist() == [0, 0]
    assert chisquare(counts[:3].numpy(), [4000 * x / 0.95 for x in p[:3]]).pvalue > 1e-3


@pytest.mark.parametrize("tau", [-1, math.nan, math.inf])
def test_impossible_tau_is_refused(tau):
    with pytest.raises(ValueError, match=r"MinK\.tau is .*0 ≤ tau"):
        MinK(tau)
