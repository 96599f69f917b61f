import math

import pytest
import torch
from hypothesis import given, strategies as st

import unspool as us
from unspool.basis import KappaRule, RowLengths
from unspool.decode.search import Sample
from unspool.decode.spec import parse
from unspool.decode.transforms.thresholds import Kappa, log_kappa
from unspool.interfaces import Step

P = torch.tensor([[0.6, 0.2, 0.1, 0.06, 0.04]])


def test_by_hand():
    # m = 2: κ = (2 − 1)/0.4 = 2.5 saturates 0.6 only: 1 + 2.5·0.4 = 2
    assert log_kappa(P.log(), 2).exp().item() == pytest.approx(2.5)
    # m = 3: two saturate, κ = 1/0.2 = 5
    assert log_kappa(P.log(), 3).exp().item() == pytest.approx(5.0)
    # 2.5·p = 1.5, .5, .25, .15, .1
    assert Kappa(0.2, width=1).keeps(P.log()).tolist() == [[True, True, True, False, False]]


def test_the_mass_beside_a_peak_is_not_rounded_off():
    # m = 4: the peak saturates, κ·599·e⁻⁴⁴ = 3, so that κp of the others is 3/599
    scores = torch.tensor([44.0] + [0.0] * 599)
    assert us.survivors(us.decode.Kappa(0.5, 3), scores).sum() == 1
    assert us.survivors(us.decode.Kappa(0.005, 3), scores).all()
    # even where p itself is nothing in double precision: e⁻⁹⁰⁰
    assert us.survivors(us.decode.Kappa(0.5, 3), torch.tensor([900.0] + [0.0] * 599)).sum() == 1
    assert us.survivors(us.decode.Kappa(0.005, 3), torch.tensor([900.0] + [0.0] * 599)).all()


rows = st.lists(st.floats(-20, 0), min_size=2, max_size=40).map(lambda x: torch.tensor([x]).log_softmax(-1))


@given(rows, st.integers(1, 30))
def test_kappa_solves_its_equation(logp, m):
    kappa = log_kappa(logp, m).double().exp()
    if m > logp.shape[1]:
        assert math.isinf(kappa.item())
    else:
        assert (kappa * logp.double().exp()).clamp(max=1).sum().item() == pytest.approx(m, rel=1e-4)


@given(rows, st.floats(0, 50), st.integers(0, 20))
def test_some_token_stays_and_a_larger_g_keeps_less(logp, g, width):
    kept, fewer = Kappa(g, width).keeps(logp), Kappa(2 * g, width).keeps(logp)
    assert fewer.any()
    assert (kept | ~fewer).all()


def test_the_input_is_not_written_to():
    before = P.log()
    after = before.clone()
    Kappa(0.2, 1)(after, Step(after), [])
    assert torch.equal(before, after)


def test_zero_keeps_everything():
    assert Kappa(0.0, 3).keeps(P.log()).all()


@pytest.mark.parametrize(("g", "width"), [(-1.0, 3), (math.nan, 3), (1.0, -1)])
def test_bad_arguments_are_named(g, width):
    with pytest.raises(ValueError, match="Kappa"):
        Kappa(g, width)


def test_row_lengths_by_hand():
    # 2.5·p = 1.5, .5, .25, .15, .1; ℓ = .5, .5, .5, 1.5, 2
    lengths = RowLengths(torch.tensor([0.5, 0.5, 0.5, 1.5, 2.0]))
    assert Kappa(0.21, 1, lengths).keeps(P.log()).tolist() == [[True, True, False, True, False]]
    both = torch.cat([P, P.flip(-1)]).log()
    # 2.5·p·ℓ from the other side = .05, .075, .125, .75, 3
    assert Kappa(0.21, 1, lengths).keeps(both)[1].tolist() == [False, False, False, True, True]
    # the most probable token stays, however short its row
    assert Kappa(100.0, 1, lengths).keeps(both).tolist() == [[True] + 4 * [False], 4 * [False] + [True]]


@given(rows, st.floats(0, 50), st.integers(0, 20))
def test_lengths_of_one_are_the_rule_without_them(logp, g, width):
    ones = RowLengths(torch.ones(logp.shape[1]))
    assert torch.equal(Kappa(g, width, ones).keeps(logp), Kappa(g, width).keeps(logp))


def test_a_fitted_rule_says_the_same_as_a_transform():
    p = torch.rand(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64).pow(8)
    p = p / p.sum(dim=-1, keepdim=True)
    rule = KappaRule(8, (0.1, 1.0), (0.4, 2.0), RowLengths(torch.arange(1.0, 51.0)))
    kept = Kappa.of(rule, 0.2).keeps(p.log())
    assert kept.any(dim=0).logical_not().any()
    best = p == p.amax(dim=-1, keepdim=True)
    accepted = [[bool(rule.step(row).accepts(i, tau=0.2)) for i in range(50)] for row in p.numpy()]
    assert torch.equal(kept, torch.tensor(accepted) | best)


def test_lengths_are_shown_in_short_and_compared():
    one, same = (
        Kappa(1.0, 3, RowLengths(torch.tensor([0.5, 1.5], dtype=kind)))
        for kind in (torch.float16, torch.float64)
    )
    assert repr(one) == "Kappa(g=1.0, width=3, lengths=RowLengths(2 tokens, 0.5 … 1.5))"
    assert one == same
    assert hash(one) == hash(same)
    assert one != Kappa(1.0, 3)
    assert parse(f"Sample({Kappa(1.0, 3)!r})") == Sample(Kappa(1.0, 3))


def test_wrong_lengths_are_refused():
    with pytest.raises(TypeError, match=r"is a Tensor, but must be unspool.basis.RowLengths"):
        Kappa(1.0, 3, torch.ones(5))
    with pytest.raises(ValueError, match="lengths for 4 tokens do not fit probabilities of 5"):
        Kappa(1.0, 3, RowLengths(torch.ones(4))).keeps(P.log())
