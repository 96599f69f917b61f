from fractions import Fraction

import numpy as np
import pytest

from unspool.basis import Rejection, verifier
from unspool.basis.verifier import Counterexample


def exists(W, p, tau, token, rows, shift):
    W = np.array(W)
    largest = np.append(np.abs(W).max(axis=0), 1.0)
    proof = Rejection(token, np.array(rows), np.array(shift, dtype=np.float64))
    slope = Fraction(tau) / (1 - Fraction(tau))
    return Counterexample(proof, W, largest, np.array(p), slope).exists()


LINE = [[0.0], [1.0], [2.0], [5.0]]


def test_tokens_without_probability_are_no_hindrance():
    p = [0.4, 0.2, 0.4, 0.0]
    assert exists(LINE, p, 0.5, 1, [0, 2], [0.1, 0.1])
    assert exists(LINE, p, 0.5, 1, [0, 1, 2, 3], [0.1, 7.0, 0.1, 0.0])  # its own shift is −p̂ᵢ
    assert not exists(LINE, p, 0.5, 1, [0, 2, 3], [0.1, 0.1, 1e-30])  # more than e^δ·0


def test_rounding_is_mended_and_no_more():
    p = [0.3, 0.4, 0.3, 0.0]
    for off, true in ((1e-17, True), (1e-11, True), (1e-8, False), (1e-3, False)):
        assert exists(LINE, p, 0.5, 1, [0, 2], [0.2 + off, 0.2]) == true


def test_a_shift_at_the_end_of_its_box_can_be_no_larger():
    p = [0.25, 0.5, 0.25, 0.0]
    assert exists(LINE, p, 0.5, 1, [0, 2], [0.25, 0.25])
    assert not exists(LINE, p, 0.5, 1, [0, 2], [np.nextafter(0.25, 1), 0.25])
    # a hair is missing, and there is no room for it
    assert not exists(LINE, p, 0.5, 1, [0, 2], [np.nextafter(0.25, 0), 0.25])


def test_what_balances_beside_the_token_does_not_balance_it():
    """0 − 2·1 + 2 = 0 along the line, and the token stands off it with p̂ᵢ = 5·10⁻¹¹, or less."""
    W = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]
    for tiny in (5e-11, 1e-14, 1e-17, 1e-300):
        p = [*(np.array([0.25, 0.5, 0.25]) * (1 - tiny)), tiny]
        assert not exists(W, p, 0.5, 3, [0, 1, 2], [0.24, -0.48, 0.24])


def test_a_direction_beside_long_rows_counts():
    W, p = [[0.0, 1.0], [1.0, 1.5], [2.0, 2.0], [0.0, 5.0]], [0.25, 0.5, 0.25, 1e-17]
    assert not exists(W, p, 0.5, 3, [0, 1, 2], [0.24, -0.48, 0.24])


@pytest.mark.parametrize("tiny", [1e-7, 1e-20, 1e-100])
def test_columns_that_depend_on_each_other_and_rooms_of_any_size(tiny):
    W, p = np.eye(2)[[0, 0, 1, 1]], [0.5 - tiny, 0.5 - tiny, tiny, tiny]
    assert exists(W, p, 0.99, 1, [0], [0.5 - tiny])
    assert exists(W, p, 0.99, 1, [0, 2, 3], [0.5 - tiny, 1e-3 * tiny, -1e-3 * tiny])
    assert exists(W, p, 0.99, 1, [0], [np.nextafter(0.5 - tiny, 0)])
    assert not exists(W, p, 0.99, 1, [0, 2], [0.5 - tiny, 1e-3 * tiny])


def large(seed, width, tokens):
    """Shifts of many rows that balance token 0 up to rounding."""
    dice = np.random.default_rng(seed)
    W = dice.standard_normal((tokens, width))
    p = dice.dirichlet(np.ones(tokens))
    wide = np.column_stack([W, np.ones(tokens)])
    weighted = (wide[1:] * p[1:, None]).T
    shift = p[1:] * np.linalg.lstsq(weighted, p[0] * wide[0], rcond=None)[0]
    return W, p, np.arange(1, tokens), shift


@pytest.mark.parametrize("width", [8, 40])
def test_many_columns_are_enclosed(monkeypatch, width):
    """40 columns are more than can be eliminated; of 8 it is proven either way."""
    W, p, rows, shift = large(0, width, 300)
    assert exists(W, p, 0.9, 0, rows, shift)
    assert exists(W, p, 0.9, 0, rows, shift * (1 + 1e-11))
    assert not exists(W, p, 0.9, 0, rows, shift * (1 + 1e-7))
    assert not exists(W, p, 1e-6, 0, rows, shift)
    monkeypatch.setattr(verifier, "FEW", 0)
    assert exists(W, p, 0.9, 0, rows, shift)


def test_few_columns_are_eliminated(monkeypatch):
    monkeypatch.setattr(verifier, "_right_inverse", lambda A, room: (None, None, np.inf))
    W, p, rows, shift = large(0, 8, 300)
    assert exists(W, p, 0.9, 0, rows, shift)
    assert not exists(W, p, 0.9, 0, rows, shift * (1 + 1e-7))
    W, p, rows, shift = large(0, 40, 300)
    assert not exists(W, p, 0.9, 0, rows, shift)  # neither way


def test_many_dependent_columns_are_not_known_to_balance():
    """Elimination is for few, and there is no inverse: what cannot be proven is refused."""
    W, p, rows, shift = large(0, 40, 300)
    assert not exists(np.column_stack([W, W]), p, 0.9, 0, rows, shift)


def test_what_was_mended_too_far_is_not_eliminated_further():
    """A huge row lets a gap look like rounding, which mending by float64 would close only by cheating."""
    W = np.array([-0.17, -0.11, -0.92, -0.8, -0.37, 1.42, 0.5, 1e11])[:, None]
    p = np.array([0.128, 0.301, 0.097, 0.113, 0.158, 0.119, 0.084, 1e-30])
    p /= p.sum()
    rows = np.arange(1, 7)
    wide = np.column_stack([W, np.ones(8)])
    shift = p[rows] * np.linalg.lstsq((wide[rows] * p[rows, None]).T, p[0] * wide[0], rcond=None)[0]
    assert exists(W, p, 0.9, 0, rows, shift)
    direction = np.linalg.svd(np.ones((1, 6)))[2][1]  # leaves Σy as it is
    far = shift + 4e-6 * p[rows].min() * direction
    assert not exists(W, p, 0.9, 0, rows, far)
