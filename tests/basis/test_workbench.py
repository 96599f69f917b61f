import numpy as np

from unspool.basis.distribution import probabilities
from unspool.basis.whitening import whiten
from unspool.basis.workbench import FIRST, Workbench


def bench(v=600, d=4):
    dice = np.random.default_rng(0)
    return Workbench(whiten(dice.normal(size=(v, d))), probabilities(dice.dirichlet(np.ones(v)), v))


def test_the_first_level_is_never_more_than_there_is():
    assert bench().first == FIRST
    assert bench(v=20).first == 20


def test_everything_is_made_once():
    made = bench()
    assert made.head(256) is made.head(256)
    assert made.sampled(256) is made.sampled(256)
    assert made.balance(256) is made.balance(256)
    assert made.whole is made.whole
    assert made.least_squares is made.least_squares
    assert made.balance(256).metric is made.head(256)


def test_levels_hold_the_rows_that_they_say():
    made = bench()
    assert made.head(100).hard + len(made.head(100).rows.tokens_S) == 100
    assert not made.head(100).rows.complete
    assert made.sampled(100).rows.complete
    assert made.whole.rows.tokens_S.tolist() == list(range(600))


def test_a_level_is_the_same_whether_or_not_a_smaller_one_lent_its_part():
    grown, fresh, e = bench(), bench(), np.ones((5, 1), dtype=np.float32)
    grown.head(64)
    np.testing.assert_allclose(grown.head(300).solve(e), fresh.head(300).solve(e), rtol=1e-3, atol=1e-6)
