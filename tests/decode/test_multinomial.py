import math
from random import Random

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare

from unspool.decode.multinomial import Multinomial, draw_uniform, invert
from unspool.interfaces import Step


class Loaded(Random):
    """Dice that always show the same."""

    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


@pytest.mark.parametrize(
    ("u", "token"), [(0.0, 0), (0.19, 0), (0.21, 2), (0.69, 2), (0.71, 3), (0.999999, 3)]
)
def test_by_hand(u, token):
    scores = torch.tensor([[0.2, 0.0, 0.5, 0.3]]).log()
    assert Multinomial().draw(scores, Step(scores), [Loaded(u)]).tolist() == [token]


def test_weights_need_no_total_of_one():
    assert invert(torch.tensor([[2.0, 0.0, 5.0, 3.0]]), torch.tensor([0.21]).double()).tolist() == [2]


@settings(deadline=None, max_examples=60)
@given(
    vocabulary=st.sampled_from([1, 2, 255, 1000]),
    seed=st.integers(0, 2**30),
    alive=st.floats(0.01, 1),
    u=st.floats(0, 1, exclude_max=True),
)
def test_invert_finds_the_token_at_a_share_of_the_mass(vocabulary, seed, alive, u):
    rng = torch.Generator().manual_seed(seed)
    weight = torch.rand(1, vocabulary, generator=rng) ** 8
    weight[torch.rand(1, vocabulary, generator=rng) > alive] = 0
    weight[0, seed % vocabulary] = 0.5
    token = int(invert(weight, torch.tensor([u], dtype=torch.float64)))
    upto = weight.double().cumsum(-1)[0]
    assert weight[0, token] > 0
    assert upto[token] - weight[0, token] <= (u + 1e-6) * upto[-1]
    assert upto[token] >= (u - 1e-6) * upto[-1]


def test_the_end_of_the_scale_is_the_last_token_with_mass():
    weight = torch.zeros(1, 773)
    weight[0, 7], weight[0, 300] = 1e-30, 1.0
    almost_one = torch.tensor([math.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert invert(weight, almost_one).tolist() == [300]
    assert invert(weight, torch.zeros(1, dtype=torch.float64)).tolist() == [7]
    # Rounded up, as a product of u may be, there still is no token beyond the last.
    assert invert(weight, torch.ones(1, dtype=torch.float64)).tolist() == [300]


def test_rows_that_are_not_contiguous():
    wide = torch.rand(4, 2, 700)
    u = torch.tensor([0.1, 0.4, 0.6, 0.9]).double()
    assert invert(wide[:, 1], u).tolist() == invert(wide[:, 1].contiguous(), u).tolist()


@pytest.mark.parametrize("vocabulary", [5, 600])
def test_frequencies_match_the_distribution(vocabulary):
    p = torch.rand(vocabulary, generator=torch.Generator().manual_seed(1)) + 0.1
    p /= p.sum()
    rows = p.log().expand(20_000, -1)
    drawn = Multinomial().draw(rows, Step(rows), [Random(i) for i in range(20_000)])
    counts = drawn.bincount(minlength=vocabulary)
    assert chisquare(counts.numpy(), 20_000 * p.double().numpy() / p.double().sum().item()).pvalue > 1e-3


def test_draws_do_not_depend_on_the_size_of_the_chunks(monkeypatch):
    rows = torch.randn(9, 700, generator=torch.Generator().manual_seed(0)).log_softmax(dim=-1)
    whole = Multinomial().draw(rows, Step(rows), [Random(i) for i in range(9)])
    monkeypatch.setattr("unspool.decode.multinomial.CHUNK_SCORES", 1500)
    assert Multinomial().draw(rows, Step(rows), [Random(i) for i in range(9)]).tolist() == whole.tolist()


def test_a_row_draws_once_from_its_rng():
    rngs, again = [Random(1), Random(2)], [Random(1), Random(2)]
    assert draw_uniform(rngs, torch.zeros(2, 3)).tolist() == [rng.random() for rng in again]
    assert [rng.random() for rng in rngs] == [rng.random() for rng in again]


@pytest.mark.parametrize(("score", "match"), [(math.nan, "row 1.*NaN"), (-math.inf, "row 1.*−∞ only")])
def test_a_row_that_cannot_be_drawn_from_is_refused(score, match):
    scores = torch.zeros(2, 400).log_softmax(dim=-1)
    scores[1] = score
    with pytest.raises(ValueError, match=match):
        Multinomial().draw(scores, Step(scores), [Random(0), Random(0)])
