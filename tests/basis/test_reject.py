import numpy as np

from unspool.basis.check import check
from unspool.basis.reject import Balance
from unspool.basis.whitening import whiten
from unspool.basis.workbench import Workbench

W = np.array([[0.0], [1.0], [-1.0], [2.0], [-3.0]])
P = np.array([0.1, 0.3, 0.3, 0.2, 0.1])


def balance(p=P, W=W):
    bench = Workbench(whiten(W), p)
    made = bench.balance(len(p))
    assert isinstance(made, Balance)
    return made


def prove(made, y_V, token, slope):
    """From multipliers in the vocabulary's order, not scaled."""
    kappa = made.dist.kappa
    return made.prove(
        kappa * y_V[made.tokens_N][:, None], kappa * made.dist.p[[token]] * 1.001, np.array([token]), slope
    )


def test_multipliers_by_hand_are_made_exact():
    # Token 0 lies between 1 and 2: half to each; c = 0.1/0.6 is the least for these two.
    (proof,), low = prove(balance(), np.array([0.0, 0.0499, 0.0502, 0.0, 0.0]), 0, 0.5)
    assert check(proof, W, P, 0.5 / 1.5)
    assert low[0] > P[0]
    moved = proof.distribution(P)
    np.testing.assert_allclose([moved.sum(), W[:, 0] @ moved], [1, W[:, 0] @ P], atol=1e-9)
    assert moved[0] == 0


def test_a_box_that_is_too_small_proves_nothing():
    (proof,), low = prove(balance(), np.array([0.0, 0.05, 0.05, 0.0, 0.0]), 0, 0.05)
    assert proof is None
    assert low[0] < P[0]


def test_lower_bounds_are_below_the_optimum():
    dice = np.random.default_rng(0)
    W, p = dice.normal(size=(60, 4)), dice.dirichlet(np.ones(60))
    made, found = balance(p, W), 0
    for token in range(0, 60, 5):
        y = 0.3 * p * dice.uniform(-1, 1, size=60)
        (proof,), _ = prove(made, y, token, 2.0)
        if proof is not None:
            found += 1
            assert check(proof, W, p, 2 / 3)
    assert found > 0
