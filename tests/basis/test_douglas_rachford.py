import numpy as np
import pytest

from unspool.basis.douglas_rachford import DouglasRachford
from unspool.basis.reference import reference
from unspool.basis.whitening import whiten
from unspool.basis.workbench import Workbench


def search(W, p, tokens, tau):
    bench = Workbench(whiten(W), np.asarray(p))
    return DouglasRachford(bench.white, bench.dist, bench.head(len(p)), np.array(tokens), tau / (1 - tau))


def test_three_tokens_by_hand():
    # The middle token is balanced by its neighbours; an end is not, and λ proves it.
    W, p = np.array([[0.0], [1.0], [-1.0]]), np.array([0.2, 0.4, 0.4])
    run = search(W, p, [0, 1], 0.3)
    for _ in range(50):
        run.iterate()
    assert run.stretch()[0] <= 1
    assert run.upper()[1] < run.goal_Q[1]
    assert run.stretch()[1] > 1


@pytest.mark.parametrize("tau", [0.05, 0.3])
def test_the_iteration_ends_on_the_side_of_the_optimum(tau):
    dice = np.random.default_rng(0)
    W, p = dice.normal(size=(80, 4)), dice.dirichlet(np.full(80, 2.0))
    tokens = np.argsort(-p)[[0, 2, 5, 20, 40, 60]]
    run = search(W, p, tokens, tau)
    balanced, proven = np.zeros(6, dtype=bool), np.zeros(6, dtype=bool)
    for _ in range(150):
        run.iterate()
        balanced |= run.stretch() <= 1
        proven |= run.upper() < 0.999 * run.goal_Q
    assert not (balanced & proven).any()
    theta = np.array([reference(W, p, int(i), tau).theta for i in tokens])
    clear = np.abs(theta - 1) > 0.05
    assert clear.any()
    assert proven[clear].tolist() == (theta < 1)[clear].tolist()
    assert balanced[clear].tolist() == (theta > 1)[clear].tolist()


def test_columns_do_not_know_of_each_other():
    dice = np.random.default_rng(1)
    W, p = dice.normal(size=(50, 3)), dice.dirichlet(np.ones(50))
    both, alone = search(W, p, [4, 9], 0.2), search(W, p, [9], 0.2)
    both.iterate()
    alone.iterate()
    both.keep(np.array([1]))
    for _ in range(3):
        both.iterate()
        alone.iterate()
    assert both.tokens_Q.tolist() == [9]
    np.testing.assert_allclose(both.v_SQ, alone.v_SQ, atol=1e-4)
