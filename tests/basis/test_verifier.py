import importlib.util
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from unspool.basis import Acceptance, BasisTest, Rejection, verifier, verify_certificate
from unspool.basis.verifier import (
    BLOCK,
    AcceptanceInequality,
    Counterexample,
    DyadicVector,
    extended_blocks,
    extended_rows,
    power_of_two,
    solve_exactly,
)

floats = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9)


def fractions(vector):
    return [n * power_of_two(vector.exponent) for n in vector.mantissas]


@pytest.fixture(scope="session")
def certificates():
    """benchmarks/certificates.py: forgeries, and a judge of them who knows nothing but fractions."""
    path = Path(__file__).resolve().parents[2] / "benchmarks/certificates.py"
    spec = importlib.util.spec_from_file_location("benchmarks_certificates", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(floats)
def test_floats_are_taken_as_they_are(values):
    assert fractions(DyadicVector.from_floats(np.array(values))) == [Fraction(x) for x in values]


@given(floats, floats)
def test_sums_and_products_are_exact(values, others):
    n = min(len(values), len(others))
    x, y = (DyadicVector.from_floats(np.array(part[:n])) for part in (values, others))
    pairs = list(zip(values[:n], others[:n], strict=True))
    assert fractions(x + y) == [Fraction(a) + Fraction(b) for a, b in pairs]
    assert x.dot(y) == sum(Fraction(a) * Fraction(b) for a, b in pairs)


@pytest.mark.parametrize("values", [[5e-324, 1e308, -1.0], [0.0, 0.0], [0.1, -0.2, 0.3]])
def test_from_the_smallest_to_the_largest(values):
    assert fractions(DyadicVector.from_floats(np.array(values))) == [Fraction(x) for x in values]


def test_nothing_at_all_is_fine():
    assert fractions(DyadicVector.from_floats(np.empty(0))) == []
    assert DyadicVector.from_floats(np.empty(0)).dot(DyadicVector.from_floats(np.empty(0))) == 0


def test_powers_of_two():
    assert [power_of_two(k) for k in (-2, 0, 3)] == [Fraction(1, 4), 1, 8]


def whole(rows):
    return [[Fraction(x) for x in row] for row in rows]


def test_a_combination_by_hand():
    # 2·(1, 0, 1) − 1/3·(0, 3, 1)
    rows, wanted = whole([[1, 0, 1], [0, 3, 1]]), [Fraction(2), Fraction(-1), Fraction(5, 3)]
    assert solve_exactly(rows, wanted) == [2, Fraction(-1, 3)]
    assert solve_exactly(rows, [Fraction(2), Fraction(-1), Fraction(2)]) is None


def test_a_row_that_others_make_up_is_not_used():
    rows = whole([[1, 2], [2, 4], [0, 1]])
    assert solve_exactly(rows, [Fraction(3), Fraction(7)]) == [3, 0, 1]
    assert solve_exactly(whole([[0, 0]]), [Fraction(0), Fraction(0)]) == [0]
    assert solve_exactly(whole([[0, 0]]), [Fraction(0), Fraction(1)]) is None
    assert solve_exactly([], []) == []


@given(st.integers(0, 10**6))
def test_what_was_combined_is_found(seed):
    rng = Random(seed)
    rows = whole(
        [[rng.choice([-1, 1]) * rng.random() * 10 ** rng.randint(-9, 9) for _ in range(5)] for _ in range(4)]
    )
    x = [Fraction(rng.randint(-9, 9), rng.randint(1, 9)) for _ in rows]
    wanted = [sum(a * row[k] for a, row in zip(x, rows, strict=True)) for k in range(5)]
    assert solve_exactly(rows, wanted) == x
    wanted[rng.randrange(5)] += Fraction(1, 10**40)
    assert solve_exactly(rows, wanted) is None


def holds(W, p, tau, i, slopes):
    return AcceptanceInequality(np.array(W), np.array(p), tau, i, np.array(slopes)).holds()


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
def test_an_invalid_direction_proves_nothing(slopes):
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
    rng = np.random.default_rng(0)
    W = np.column_stack([1e12 + np.arange(3000.0), rng.standard_normal(3000)])
    p = rng.dirichlet(np.ones(3000))
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
    assert (np.concatenate(list(extended_blocks(W))) == extended_rows(W, slice(None))).all()


def test_a_matrix_with_nan_is_refused():
    with pytest.raises(ValueError, match="NaN or infinite"):
        holds([[np.nan], [1.0]], [0.5, 0.5], 0.5, 0, [1.0, 0.0])


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
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((tokens, width))
    p = rng.dirichlet(np.ones(tokens))
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
    monkeypatch.setattr(verifier, "MAX_ELIMINATION_SIZE", 0)
    assert exists(W, p, 0.9, 0, rows, shift)


@pytest.mark.parametrize("power", [8, 12, 16, 20])
def test_the_error_of_the_inverse_is_bounded(power):
    """Nearly all of the error of this inverse is in one row of E = I − AᵀR."""
    A = np.eye(9)
    A[1:, 0] = 1.3 * 2**power
    top, R, theta = verifier._right_inverse(A, np.ones(9))
    products = [
        [sum(a * b for a, b in zip(left, right, strict=True)) for right in whole(R.T)]
        for left in whole(A[top].T)
    ]
    norm = max(sum(abs((i == j) - x) for j, x in enumerate(row)) for i, row in enumerate(products))
    assert norm <= theta < 1


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


def test_an_acceptance_by_hand(example):
    # λ = (W − .65)/(.71 − .65): s = (−1.67, 1, −6) and f = .331·1.67 + .171·6 > .498: no proof
    slopes = np.array([1, -0.65]) / 0.06
    assert not verify_certificate(Acceptance(1, slopes), example.W, example.p, example.tau)
    # the constant λ: f = c·(1 − p̂) = .9·.502 < .498
    assert verify_certificate(Acceptance(1, np.array([0.0, 1.0])), example.W, example.p, example.tau)
    assert not verify_certificate(Acceptance(1, np.array([0.0, -1.0])), example.W, example.p, example.tau)


def test_a_rejection_by_hand(example):
    # the token at .55 is replaced by two neighbours with the same mean: .55 = (.71·26 + .29·16)/42
    p0 = example.p[0]
    shift = np.array([26 / 42, 16 / 42]) * p0
    assert verify_certificate(Rejection(0, np.array([1, 2]), shift), example.W, example.p, example.tau)
    # it needs p₂ ≥ 1.74·p̂₂: too much for δ = log 1.7
    assert not verify_certificate(Rejection(0, np.array([1, 2]), shift), example.W, example.p, 1 - 1 / 1.7)
    # a wrong mean
    assert not verify_certificate(
        Rejection(0, np.array([1, 2]), shift[::-1]), example.W, example.p, example.tau
    )


def exact(rows, p, i, slopes, c):
    """f(λ) < p̂ᵢ in rational arithmetic."""
    s = [
        sum(Fraction(w) * Fraction(x) for w, x in zip([*row, 1.0], slopes, strict=True))
        for row in rows.tolist()
    ]
    f = sum(
        Fraction(q) * max(c * x, -x) for j, (q, x) in enumerate(zip(p.tolist(), s, strict=True)) if j != i
    )
    return s[i] > 0 and f < Fraction(float(p[i])) * s[i]


def test_proofs_of_acceptance_hold_in_exact_arithmetic(random_problem):
    rng, seen = np.random.default_rng(5), 0
    for _ in range(120):
        it = random_problem(rng)
        test = BasisTest(it.W, it.rank)
        p = test.step(it.p).distribution.p
        verdict = test.accepts(it.p, it.token, tau=it.tau)
        if isinstance(verdict.certificate, Acceptance):
            c = Fraction(it.tau) / (1 - Fraction(it.tau))
            rows = np.asarray(test.weight, dtype=np.float64)
            assert exact(rows, p, it.token, verdict.certificate.dual_M.tolist(), c)
            seen += 1
    assert seen > 15


def test_a_tampered_certificate_is_noticed(model):
    test, p = BasisTest(model.W), model.p(1)
    step = test.step(p)
    verdicts = [step.accepts(int(i), tau=0.1) for i in step.distribution.order_N[:40]]
    for verdict in verdicts:
        match verdict.certificate:
            case Acceptance() as proof:
                other = replace(proof, token=(proof.token + 1) % len(p))
            case Rejection() as proof:
                other = replace(proof, shift_N=proof.shift_N * 1.001)
        assert test.verify(verdict.certificate, p, 0.1)
        assert not test.verify(other, p, 0.1)
    assert {verdict.accepted for verdict in verdicts} == {True, False}


def tampered(proof, p):
    """A rejection altered in every way that leaves its shapes as they are."""
    yield "another token", replace(proof, token=int(proof.rows_N[0]))
    for factor in (0.999, 1.001, -1.0):
        yield f"shifts times {factor}", replace(proof, shift_N=proof.shift_N * factor)
    yield "two rows exchanged", replace(proof, rows_N=np.append(proof.rows_N[[1, 0]], proof.rows_N[2:]))
    for k in (0, 7, -1):
        change = np.zeros_like(proof.shift_N)
        change[k] = 1e-3 * p[proof.rows_N[k]]
        yield f"row {k} a thousandth of its probability off", replace(proof, shift_N=proof.shift_N + change)
    yield "without its last rows", replace(proof, rows_N=proof.rows_N[:-9], shift_N=proof.shift_N[:-9])


def test_a_tampered_rejection_is_not_mended(model):
    test, p = BasisTest(model.W), model.p(1)
    step, seen = test.step(p), 0
    for i in step.distribution.order_N[12:60:4]:
        verdict = step.accepts(int(i), tau=0.3)
        if isinstance(verdict.certificate, Rejection):
            assert test.verify(verdict.certificate, p, 0.3)
            for method, other in tampered(verdict.certificate, p):
                assert not test.verify(other, p, 0.3), method
            seen += 1
    assert seen > 5


def test_a_certificate_is_for_its_tau(model):
    test, p = BasisTest(model.W), model.p(1)
    step = test.step(p)
    for rank in (15, 25, 40):
        i = int(step.distribution.order_N[rank])
        low, high = test.critical_tau(p, i)
        assert high < 1
        accepted, rejected = step.accepts(i, tau=low), step.accepts(i, tau=high)
        assert test.verify(accepted.certificate, p, low)
        assert test.verify(accepted.certificate, p, low * 0.5)
        assert not test.verify(accepted.certificate, p, high * 1.01)
        assert test.verify(rejected.certificate, p, high)
        assert test.verify(rejected.certificate, p, high * 1.01)
        assert not test.verify(rejected.certificate, p, low * 0.99)


def test_rounding_is_mended_and_units_do_not_matter(example):
    shift = np.array([26 / 42, 16 / 42]) * example.p[0]
    for scale in (1e-8, 1.0, 1e8):
        for off, valid in ((1e-12, True), (1e-8, False)):
            proof = Rejection(0, np.array([1, 2]), shift + np.array([off, 0]))
            assert verify_certificate(proof, scale * example.W, example.p, example.tau) is valid
    # Two tokens leave no room: what is not there cannot be mended.
    assert not verify_certificate(
        Rejection(0, np.array([1]), np.array([0.5])), np.array([[0.0], [1.0]]), [0.5, 0.5], 0.9
    )


def test_a_nearly_constant_column_counts():
    """Its deviation of 10⁻⁶ is an equality like any other: who drops it balances nothing."""
    rng = np.random.default_rng(0)
    W = np.column_stack([3 + 1e-6 * rng.standard_normal(60), rng.standard_normal((60, 2))])
    p, others = np.full(60, 1 / 60), np.arange(1, 60)
    wide = np.column_stack([W[:, 1:], np.ones(60)])
    shift = np.linalg.lstsq(wide[others].T, wide[0] / 60, rcond=None)[0]
    assert verify_certificate(Rejection(0, others, shift), W[:, 1:], p, 0.5)
    assert not verify_certificate(Rejection(0, others, shift), W, p, 0.5)
    test = BasisTest(W)
    assert test.m == 4
    assert test.verify(test.accepts(p, 0, tau=0.5).certificate, p, 0.5)


def test_proofs_that_overflow_underflow_or_hide_behind_others_are_false():
    p = [0.4, 0.5, 0.1]
    assert not verify_certificate(Acceptance(2, np.array([1e308, 0.0])), [[-1.0], [1.0], [2.0]], p, 0.5)
    assert not verify_certificate(Acceptance(2, np.array([5e-324, 0.0])), [[-0.3], [0.4], [0.6]], p, 0.5)
    beside = np.array([0.25, 0.5, 0.25, 0.0]) * (1 - 5e-11)
    beside[3] = 5e-11
    W = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]
    assert not verify_certificate(
        Rejection(3, np.array([0, 1, 2]), np.array([0.24, -0.48, 0.24])), W, beside, 0.5
    )


def test_true_rejections_are_not_refused():
    W, p = [[0.0], [1.0], [2.0], [5.0]], [0.4, 0.2, 0.4, 0.0]
    assert verify_certificate(Rejection(1, np.array([0, 2]), np.array([0.1, 0.1])), W, p, 0.5)
    verdict = BasisTest(np.array(W)).accepts(p, 1, tau=0.5)
    assert not verdict.accepted
    assert verify_certificate(verdict.certificate, W, p, 0.5)


def test_no_forgery_passes_and_nothing_of_the_solvers_is_refused(certificates):
    """Certificates mutated and made up, each judged in fractions: benchmarks/certificates.py makes more."""
    found = certificates.tally(1500)
    assert found.wrong == []
    assert found.own > 100
    passed, refused = ({kind for kind, passes, _ in found.seen if passes == it} for it in (True, False))
    assert {"overflow", "underflow", "beside a balance", "where f(λ) meets p̂ᵢ"} <= passed & refused
    assert refused >= {"another token", "no number", "rows twice", "rows exchanged", "y disturbed"}


def test_no_shifts_at_all_prove_nothing():
    for rows in ([], np.empty(0, dtype=np.intp)):
        assert not verify_certificate(
            Rejection(1, np.array(rows), np.empty(0)), [[0.0], [1.0]], [0.5, 0.5], 0.5
        )


def test_rows_that_are_named_twice_prove_nothing():
    W, p = [[0.0], [1.0], [2.0]], [0.3, 0.4, 0.3]
    assert verify_certificate(Rejection(1, np.array([0, 2]), np.array([0.2, 0.2])), W, p, 0.5)
    assert not verify_certificate(Rejection(1, np.array([0, 2, 0]), np.array([0.1, 0.2, 0.2])), W, p, 0.5)


@pytest.mark.parametrize("kind", [np.float16, np.float32, "torch.bfloat16", "torch.float32", list])
def test_w_may_be_of_any_kind(kind):
    W = np.array([[0.0], [1.0], [2.0]])
    if kind is list:
        W = W.tolist()
    elif isinstance(kind, str):
        W = torch.tensor(W, dtype=getattr(torch, kind.removeprefix("torch.")))
    else:
        W = W.astype(kind)
    p = [0.3, 0.4, 0.3]
    assert verify_certificate(Rejection(1, np.array([0, 2]), np.array([0.2, 0.2])), W, p, 0.5)
    assert verify_certificate(Acceptance(2, np.array([0.5, 0.0])), W, p, 0.1)


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (Acceptance(3, np.array([1.0, 0.0])), "token is 3, which is more than 2"),
        (Acceptance(-1, np.array([1.0, 0.0])), "token is -1"),
        (Acceptance(1, np.array([1.0, 0.0, 0.0])), r"λ has shape \(3,\).*2 columns.*BasisTest.weight"),
        (Rejection(1, np.array([0, 3]), np.array([0.2, 0.2])), "rows outside 0 … 2"),
        (Rejection(1, np.array([0, -1]), np.array([0.2, 0.2])), "rows outside 0 … 2"),
        (Rejection(1, np.array([0.0, 2.0]), np.array([0.2, 0.2])), "one row index per shift"),
        (Rejection(1, np.array([0]), np.array([0.2, 0.2])), "one row index per shift"),
    ],
)
def test_a_certificate_of_another_shape_is_refused(certificate, words):
    with pytest.raises(ValueError, match=words):
        verify_certificate(certificate, [[0.0], [1.0], [2.0]], [0.3, 0.4, 0.3], 0.5)


def test_an_invalid_distribution_or_matrix_is_refused():
    proof = Acceptance(1, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="sums to 0"):
        verify_certificate(proof, [[0.0], [1.0]], [0.4, 0.5], 0.5)
    with pytest.raises(ValueError, match="one row per token"):
        verify_certificate(proof, [0.0, 1.0], [0.5, 0.5], 0.5)
    with pytest.raises(ValueError, match="NaN or infinite"):
        verify_certificate(proof, [[np.nan], [1.0]], [0.5, 0.5], 0.5)
    with pytest.raises(ValueError, match="0 < tau < 1"):
        verify_certificate(proof, [[0.0], [1.0]], [0.5, 0.5], 1.0)
