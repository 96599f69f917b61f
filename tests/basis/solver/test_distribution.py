import numpy as np
import pytest
from hypothesis import given, strategies as st

from unspool.basis.solver.distribution import Distribution


@given(st.integers(1, 400), st.integers(1, 300), st.integers(0, 2**32))
def test_the_head_and_the_sums_are_those_of_a_sort(vocabulary, head, seed):
    p = np.random.default_rng(seed).dirichlet(np.full(vocabulary, 0.3))
    dist = Distribution(p, m=1, head=head)
    order = np.argsort(-p)
    n = len(dist.order_N)
    assert n == min(head, vocabulary, np.count_nonzero(p))
    assert p[dist.order_N].tolist() == p[order[:n]].tolist()
    for r in (0, n // 2, n):
        assert dist.tail_mass_N[r] == pytest.approx(p[order[r:]].sum(), abs=1e-15)
        assert dist.tail_squares_N[r] == pytest.approx((p[order[r:]] ** 2).sum(), abs=1e-15)
    assert dist.ranks(dist.order_N).tolist() == list(range(n))
    assert (dist.ranks(order[n:]) >= vocabulary).all()


def test_extending_keeps_the_ranks():
    p = np.random.default_rng(0).dirichlet(np.full(100, 0.3))
    dist = Distribution(p, m=3, head=10)
    before = dist.order_N.copy()
    dist.extend_head(50)
    assert len(dist.order_N) == 50
    assert dist.order_N[:10].tolist() == before.tolist()


def test_extending_keeps_the_ranks_of_equals():
    dist = Distribution(np.repeat([0.02, 0.005], [25, 100]), m=3, head=10)
    before = dist.order_N.copy()
    for head in (20, 60, 125):
        dist.extend_head(head)
        assert dist.order_N[:10].tolist() == before.tolist()
        assert (np.diff(dist.head_N) <= 0).all()
    assert sorted(dist.order_N) == list(range(125))
    assert not dist.tail_V.any()


def test_the_sample_stands_for_the_tail():
    p = np.random.default_rng(0).dirichlet(np.full(5000, 0.3))
    dist = Distribution(p, m=3, head=100)
    tokens, weight = dist.sample_tail(50, 400)
    assert weight.sum() == pytest.approx(dist.tail_mass_N[50])
    assert (dist.ranks(tokens) >= 50).all()
    value = np.cos(np.arange(5000))
    tail = p.copy()
    tail[dist.order_N[:50]] = 0
    assert weight @ value[tokens] == pytest.approx(tail @ value, abs=0.1)
    assert [len(x) for x in dist.sample_tail(5000, 10)] == [0, 0]


def test_kappa_is_finite_even_with_fewer_tokens_than_constraints():
    assert Distribution(np.array([0.9, 0.1, 0.0]), m=5).kappa == pytest.approx(10)
    assert Distribution(np.array([1.0, 0.0]), m=5).kappa == pytest.approx(1)
