import numpy as np
import pytest

from unspool.basis.certificate import Acceptance, Rejection, Verdict


def test_a_rejection_is_a_distribution_without_the_token():
    # rows 1 and 2 take over what token 0 had
    proof = Rejection(0, np.array([1, 2]), np.array([0.15, 0.05]))
    q = proof.distribution([0.2, 0.5, 0.3])
    assert q.tolist() == pytest.approx([0, 0.65, 0.35])
    assert q.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("accepted", "certificate", "decided"),
    [
        (True, Acceptance(0, np.ones(2)), True),
        (False, Rejection(0, np.array([1]), np.ones(1)), True),
        (False, None, False),
    ],
)
def test_a_verdict_is_true_if_the_token_is_accepted(accepted, certificate, decided):
    verdict = Verdict(accepted, 0, 0.1, "least squares", certificate, 0.0, 1.0)
    assert bool(verdict) is accepted
    assert verdict.decided is decided
