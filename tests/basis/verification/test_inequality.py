from fractions import Fraction

import numpy as np
import pytest

from unspool.basis.verifier import BLOCK, Inequality, blocks_of, rows_of


def holds(W, p, tau, i, slopes):
    return Inequality(np.array(W), np.array(p), tau, i, np.array(slopes)).holds()


def test_by_hand():
    # s = (−1, 1, 2)·λ, c = 1: .4·1 + .5·1 < .1·2 is false, and .1·2 + .4 + … with token 1: .6 < .5 is false
    W, p = [[-1.0], [1.0], [2.0]], [0.4, 0.5, 0.1]
    assert not holds(W, p, 0.5, 2, [1.0, 0.0])
    # the constant λ: c·(1 − p) < p
    assert holds(W, p, 0.49, 1, [0.0, 1.0])
    assert not holds(W, p, 0.5, 1, [0.0, 1.0])  # equal is not less
    assert not holds(W, p, 0.49, 1, [0.0, -1.0])


@pytest.mark.parametrize("size", [1e308, 1.0, 1e-308, 5e-324])
def test_the_size_of_lambda_does_not_matter(size):
    """Σ p|s| against p₂s₂ with s ∝ W: neither overflow nor underflow makes it true."""
    assert not holds([[-1.0], [1.0], [2.0]], [0.4, 0.5, 0.1], 0.5, 2, [size, 0.0])
    assert not holds([[-0.3], [0.4], [0.6]], [0.4, 0.5, 0.1], 0.5, 2, [size, 0.0])
    assert holds([[0.0], [0.0], [2.0]], [0.4, 0.5, 0.1], 0.5, 2, [size, 0.0])


@pytest.mark.parametrize("slopes", [[np.nan, 1.0], [np.inf, 0.0], [0.0, 0.0]])
def test_what_is_no_direction_proves_nothing(slopes):
    assert not holds([[0.0], [0.0], [2.0]], [0.4, 0.5, 0.1], 0.5, 2, slopes)


def test_the_last_digit_decides():
    """f(λ) = p̂ᵢ exactly, and a hair on either side of it."""
    W, p = np.array([[1.0], [0.0]]), np.array([0.25, 0.75])
    for slopes, true in (([2.0, 1.0], False), ([2.0 - 2**-51, 1.0], True), ([2.0 + 2**-51, 1.0], False)):
        # s = (3, 1) nearly, c = 1: .25·s₀ against .75·1
        assert holds(W, p, 0.5, 1, slopes) == true


def test_cancellation_is_seen_through():
    """s₀ = 10¹⁶ − (10¹⁶ − 1) + … is 1, and 0 or 2 to float64."""
    W, p = np.array([[1e16, 1.0], [0.0, 0.0]]), np.array([0.5, 0.5])
    assert not holds(W, p, 0.5, 1, [1.0, -1e16, 1.0])  # s = (1, 1)
    assert holds(W, p, 0.5, 1, [1.0, -1e16 - 1e-3, 1.0]) == (Fraction(1e16) + Fraction(-1e16 - 1e-3) + 1 < 1)


def test_many_rows_of_which_few_are_exact():
    dice = np.random.default_rng(0)
    W = np.column_stack([1e12 + np.arange(3000.0), dice.standard_normal(3000)])
    p = dice.dirichlet(np.ones(3000))
    slopes = np.array([1.0, 0.3, -1e12 - 1500])
    s = [Fraction(a) + Fraction(b) * Fraction(0.3) - 10**12 - 1500 for a, b in W.tolist()]
    for i in (0, 1499, 2999):
        for tau in (1e-6, 0.5):
            c = Fraction(tau) / (1 - Fraction(tau))
            f = sum(Fraction(q) * max(c * x, -x) for q, x in zip(p.tolist(), s, strict=True))
            f -= Fraction(float(p[i])) * max(c * s[i], -s[i])
            assert holds(W, p, tau, i, slopes) == (f < Fraction(float(p[i])) * s[i])


def test_rows_in_blocks_are_all_rows():
    W = np.arange(3.0 * BLOCK).reshape(-1, 2)
    assert (np.concatenate(list(blocks_of(W))) == rows_of(W, slice(None))).all()


def test_a_matrix_with_nan_is_refused():
    with pytest.raises(ValueError, match="nothing can be proven"):
        holds([[np.nan], [1.0]], [0.5, 0.5], 0.5, 0, [1.0, 0.0])
