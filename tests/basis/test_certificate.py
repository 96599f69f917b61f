import numpy as np
import pytest

from unspool.basis.certificate import Acceptance, Rejection, Verdict


def test_a_rejection_is_a_distribution_without_the_token():
    p = np.array([0.2, 0.3, 0.5])
    proof = Rejection(0, np.array([1, 2]), np.array([0.05, 0.15]))
    np.testing.assert_allclose(proof.distribution(p), [0, 0.35, 0.65])
    np.testing.assert_allclose(proof.distribution(2 * p), [0, 0.35, 0.65])
    assert p.tolist() == [0.2, 0.3, 0.5]


@pytest.mark.parametrize("accepted", [True, False])
def test_a_verdict_is_true_where_it_accepts_and_decided_where_it_has_a_proof(accepted):
    open_ = Verdict(accepted, 3, 0.1, "undecided", None, 0.0, 1.0)
    proven = Verdict(accepted, 3, 0.1, "threshold", Acceptance(3, np.ones(1)), 0.0, 1.0)
    assert bool(open_) == bool(proven) == accepted
    assert proven.decided
    assert not open_.decided
