from math import exp, inf, log, sqrt

import pytest
import torch
from hypothesis import given, strategies as st

from unspool.diagnose.overestimation import failures, optimality_gap, underestimation

TRUE = torch.tensor([[0.5, 0.5, 0.0], [0.8, 0.0, 0.2]])
MODEL = torch.tensor([[0.4, 0.5, 0.1], [0.6, 0.3, 0.1]])


def test_by_hand():
    found = underestimation(MODEL.log(), TRUE)
    # contexts: log 0.5/0.4 = 0.223; max(log 0.8/0.6, log 0.2/0.1) = 0.693
    assert found.delta == pytest.approx(log(2), abs=1e-6)
    assert found.quantiles == pytest.approx({0.5: log(2), 0.9: log(2), 0.99: log(2)}, abs=1e-6)
    assert found.tau == pytest.approx(0.5, abs=1e-6)
    assert found.overestimation == pytest.approx(0.3)


def test_failures_by_hand():
    # above 0.2: 0.4, 0.5 | 0.6, 0.3, and the last cannot occur; it has a third of the second context's mass
    found = failures(MODEL.log(), TRUE, 0.2)
    assert (found.kept, found.impossible, found.share) == (4, 1, 0.25)
    assert found.mass == pytest.approx((0 + 1 / 3) / 2)
    # Corollary 1: at the τ of the δ above nothing fails.
    assert failures(MODEL.log(), TRUE, 0.5).impossible == 0
    assert failures(MODEL.log(), TRUE, 0.9).share == 0


def test_the_gap_by_hand():
    # W = 0, 3, 0: centred −1, 2, −1. First context: p* − p̂ = 0.1, 0, −0.1, and −0.1 + 0.1 = 0: at the optimum.
    # Second: 0.2, −0.3, 0.1, and −0.2 − 0.6 − 0.1 = −0.9; the spread is √2.
    found = optimality_gap(MODEL.log(), TRUE, torch.tensor([[0.0], [3.0], [0.0]]))
    assert found.residual_C.tolist() == pytest.approx([0, 0.9 / sqrt(2)], abs=1e-6)
    assert found.relative_C.tolist() == pytest.approx([0, 0.9 / sqrt(0.04 + 0.36 + 0.01)], abs=1e-6)


def test_a_model_that_is_right_has_no_gap_and_underestimates_nothing():
    true = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.0, 0.75]], dtype=torch.float64)
    found = underestimation(true.log(), true)
    assert [found.delta, found.tau, found.overestimation] == pytest.approx([0, 0, 0], abs=1e-12)
    assert optimality_gap(true.log(), true, torch.eye(3)).residual_C.tolist() == pytest.approx(
        [0, 0], abs=1e-12
    )


def test_probability_zero_gives_infinite_underestimation():
    found = underestimation(torch.tensor([[0.0, 1.0]]).log(), torch.tensor([[0.5, 0.5]]))
    assert (found.delta, found.tau) == (inf, 1)


simplex = (
    st.lists(st.integers(0, 9), min_size=5, max_size=5).filter(any).map(lambda x: torch.tensor(x) / sum(x))
)


@given(simplex, st.lists(st.floats(-3, 3), min_size=5, max_size=5))
def test_theorem_1_and_corollary_1_hold(true_V, scores):
    logp_CV, true_CV = torch.tensor([scores], dtype=torch.float64).log_softmax(-1), true_V[None].double()
    true_CV = true_CV / true_CV.sum()
    found = underestimation(logp_CV, true_CV)
    assert found.overestimation <= 1 - exp(-found.delta) + 1e-9
    assert failures(logp_CV, true_CV, min(found.tau + 1e-9, 0.999999)).impossible == 0


def test_a_minimum_of_cross_entropy_has_no_gap():
    # p̂ = softmax(W h) with h fitted to p* by gradient descent.
    dice = torch.Generator().manual_seed(3)
    matrix_VD = torch.randn(6, 2, generator=dice, dtype=torch.float64)
    true_CV = torch.tensor([[0.4, 0.0, 0.3, 0.2, 0.1, 0.0]], dtype=torch.float64)
    hidden_CD = torch.zeros(1, 2, dtype=torch.float64)
    for _ in range(4000):
        p_CV = (hidden_CD @ matrix_VD.T).softmax(-1)
        hidden_CD += 0.2 * (true_CV - p_CV) @ matrix_VD
    far = optimality_gap(torch.full((1, 6), 1 / 6).log(), true_CV, matrix_VD)
    near = optimality_gap((hidden_CD @ matrix_VD.T).log_softmax(-1), true_CV, matrix_VD)
    assert near.residual_C.item() < 1e-9 < 0.1 < far.residual_C.item()


@pytest.mark.parametrize(
    ("logp", "true", "match"),
    [
        (torch.zeros(2, 3), torch.ones(2, 4) / 4, "shape"),
        (torch.zeros(0, 3), torch.zeros(0, 3), "one row or more"),
        (torch.zeros(1, 2), torch.tensor([[0.7, 0.7]]), "not a distribution"),
        (torch.zeros(1, 2), torch.tensor([[-0.5, 1.5]]), "not a distribution"),
    ],
)
def test_invalid_distributions_raise(logp, true, match):
    with pytest.raises(ValueError, match=match):
        underestimation(logp, true)


def test_other_arguments_are_checked():
    with pytest.raises(ValueError, match="tau is 1"):
        failures(MODEL.log(), TRUE, 1)
    with pytest.raises(ValueError, match="must have 3 rows"):
        optimality_gap(MODEL.log(), TRUE, torch.eye(4))
