import numpy as np
import pytest

from unspool.basis.solver.douglas_rachford import TARGET_FACTOR, DouglasRachford
from unspool.basis.solver.lewis_metric import LewisMetric, select_head
from unspool.basis.solver.rejection_proof import MultiplierRepair, fix_multipliers
from unspool.basis.verifier import verify_certificate


def balanced(white, dist, n, tokens, slope, iterations=15):
    metric = LewisMetric(white, dist, select_head(white, dist, n))
    search = DouglasRachford(white, dist, metric, tokens, slope)
    for _ in range(iterations):
        search.iterate()
    return metric, search


def test_a_float32_solution_is_refined_to_float64(model, white, dist):
    tokens, slope, tau = dist.order_N[[60, 200, 900]], 0.5, 1 / 3
    metric, search = balanced(white, dist, 800, tokens, slope)
    assert (search.required_box_scale() <= 1).all()
    found, low = MultiplierRepair(white, dist, metric).prove(
        search.multipliers(np.arange(3)), TARGET_FACTOR * search.own_mass_Q, tokens, slope
    )
    assert (low > dist.p[tokens]).all()
    wide = np.column_stack([model.W.astype(np.float64), np.ones(len(model.W))])
    for proof, token in zip(found, tokens, strict=True):
        miss = wide[proof.rows_N].T @ proof.shift_N - dist.p[token] * wide[token]
        assert np.abs(miss).max() < 1e-9 * dist.p[token] * np.abs(wide).max()
        assert verify_certificate(proof, model.W, dist.p, tau)
        q = dist.p[proof.rows_N] + proof.shift_N
        assert q.min() >= 0
        assert (q <= (1 + slope) * dist.p[proof.rows_N]).all()


def test_multipliers_outside_the_box_prove_nothing(white, dist):
    tokens = dist.order_N[[60]]
    metric, search = balanced(white, dist, 800, tokens, 0.5)
    found, low = MultiplierRepair(white, dist, metric).prove(
        10 * search.multipliers(np.arange(1)), 10 * TARGET_FACTOR * search.own_mass_Q, tokens, 0.01
    )
    assert found == [None]
    assert low[0] < dist.p[tokens[0]]


def test_multipliers_that_leave_the_box_by_less_than_the_margin_prove_nothing(white, dist):
    token = dist.order_N[[60]]
    metric, search = balanced(white, dist, 800, token, 0.5)
    y, t = search.multipliers(np.arange(1)), TARGET_FACTOR * search.own_mass_Q
    repair = MultiplierRepair(white, dist, metric)
    (proof,), _ = repair.prove(y, t, token, 0.5)
    least = (proof.shift_N / dist.p[proof.rows_N]).max()  # the least c whose box holds these shifts
    for slope, is_proven in ((least * (1 + 1e-5), True), (least * (1 - 5e-7), False)):
        (proof,), (low,) = repair.prove(y, t, token, slope)
        assert (proof is not None) == (low > dist.p[token[0]]) == is_proven


def test_an_infeasible_balance_is_not_reported_as_one(model, white, dist):
    """Two rows cannot balance a third one: nothing is proven, however small the repairs look."""
    metric = LewisMetric(white, dist, select_head(white, dist, 3))
    token = dist.order_N[10:11]
    n = metric.n_hard + len(metric.rows.tokens_S)
    found, low = MultiplierRepair(white, dist, metric).prove(np.zeros((n, 1)), np.ones(1), token, 0.5)
    assert found == [None]
    assert low[0] == 0


def test_a_fixed_tail_is_part_of_the_proof(model, white, dist):
    tokens, slope = dist.order_N[[60]], 0.5
    metric, search = balanced(white, dist, 800, tokens, slope)
    beyond = dist.order_N[1000:1200]
    tail = fix_multipliers(white, beyond, 0.01 * slope * dist.p[beyond, None] * dist.kappa)
    found, _ = MultiplierRepair(white, dist, metric).prove(
        search.multipliers(np.arange(1)), TARGET_FACTOR * search.own_mass_Q, tokens, slope, tail
    )
    assert set(beyond) <= set(found[0].rows_N)
    assert verify_certificate(found[0], model.W, dist.p, 1 / 3)


@pytest.mark.parametrize("t", [0.0, -1.0])
def test_nothing_is_proven_without_a_positive_t(white, dist, t):
    metric, search = balanced(white, dist, 800, dist.order_N[[60]], 0.5)
    found, _ = MultiplierRepair(white, dist, metric).prove(
        0 * search.multipliers(np.arange(1)), np.array([t]), dist.order_N[[60]], 0.5
    )
    assert found == [None]


def test_every_case_has_a_fixed_tail_of_its_own(model, white, dist):
    tokens, slope, beyond = dist.order_N[[60, 200]], 0.5, dist.order_N[1000:1200]
    metric, search = balanced(white, dist, 800, tokens, slope)
    y_TQ = dist.p[beyond, None] * dist.kappa * np.array([0.01, -0.02])
    tail, balance = fix_multipliers(white, beyond, y_TQ), MultiplierRepair(white, dist, metric)
    y, t = search.multipliers(np.arange(2)), TARGET_FACTOR * search.own_mass_Q
    both, _ = balance.prove(y, t, tokens, slope, tail)
    (alone,), _ = balance.prove(y[:, 1:], t[1:], tokens[1:], slope, tail.keep_columns(np.array([1])))
    assert all(verify_certificate(proof, model.W, dist.p, 1 / 3) for proof in (*both, alone))
    assert alone.shift_N == pytest.approx(both[1].shift_N)
    assert (alone.shift_N[-200:] < 0).all()
