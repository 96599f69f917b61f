from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from unspool.basis import Acceptance, BasisTest, Rejection, check


def test_an_acceptance_by_hand(example):
    # λ = (W − .65)/(.71 − .65): s = (−1.67, 1, −6) and f = .331·1.67 + .171·6 > .498: no proof
    slopes = np.array([1, -0.65]) / 0.06
    assert not check(Acceptance(1, slopes), example.W, example.p, example.tau)
    # the constant λ: f = c·(1 − p̂) = .9·.502 < .498
    assert check(Acceptance(1, np.array([0.0, 1.0])), example.W, example.p, example.tau)
    assert not check(Acceptance(1, np.array([0.0, -1.0])), example.W, example.p, example.tau)


def test_a_rejection_by_hand(example):
    # the token at .55 is replaced by two neighbours with the same mean: .55 = (.71·26 + .29·16)/42
    p0 = example.p[0]
    shift = np.array([26 / 42, 16 / 42]) * p0
    assert check(Rejection(0, np.array([1, 2]), shift), example.W, example.p, example.tau)
    # it needs p₂ ≥ 1.74·p̂₂: too much for δ = log 1.7
    assert not check(Rejection(0, np.array([1, 2]), shift), example.W, example.p, 1 - 1 / 1.7)
    # a wrong mean
    assert not check(Rejection(0, np.array([1, 2]), shift[::-1]), example.W, example.p, example.tau)


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
    dice, seen = np.random.default_rng(5), 0
    for _ in range(120):
        it = random_problem(dice)
        test = BasisTest(it.W, it.rank)
        p = test.step(it.p).distribution.p
        verdict = test.accepts(it.p, it.token, tau=it.tau)
        if isinstance(verdict.certificate, Acceptance):
            c = Fraction(it.tau) / (1 - Fraction(it.tau))
            rows = np.asarray(test.weight, dtype=np.float64)
            assert exact(rows, p, it.token, verdict.certificate.slopes_M.tolist(), c)
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
        assert test.check(verdict.certificate, p, 0.1)
        assert not test.check(other, p, 0.1)
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
            assert test.check(verdict.certificate, p, 0.3)
            for how, other in tampered(verdict.certificate, p):
                assert not test.check(other, p, 0.3), how
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
        assert test.check(accepted.certificate, p, low)
        assert test.check(accepted.certificate, p, low * 0.5)
        assert not test.check(accepted.certificate, p, high * 1.01)
        assert test.check(rejected.certificate, p, high)
        assert test.check(rejected.certificate, p, high * 1.01)
        assert not test.check(rejected.certificate, p, low * 0.99)


def test_rounding_is_mended_and_units_do_not_matter(example):
    shift = np.array([26 / 42, 16 / 42]) * example.p[0]
    for scale in (1e-8, 1.0, 1e8):
        for off, valid in ((1e-12, True), (1e-8, False)):
            proof = Rejection(0, np.array([1, 2]), shift + np.array([off, 0]))
            assert check(proof, scale * example.W, example.p, example.tau) is valid
    # Two tokens leave no room: what is not there cannot be mended.
    assert not check(Rejection(0, np.array([1]), np.array([0.5])), np.array([[0.0], [1.0]]), [0.5, 0.5], 0.9)


def test_a_nearly_constant_column_counts():
    """Its deviation of 10⁻⁶ is an equality like any other: who drops it balances nothing."""
    dice = np.random.default_rng(0)
    W = np.column_stack([3 + 1e-6 * dice.standard_normal(60), dice.standard_normal((60, 2))])
    p, others = np.full(60, 1 / 60), np.arange(1, 60)
    wide = np.column_stack([W[:, 1:], np.ones(60)])
    shift = np.linalg.lstsq(wide[others].T, wide[0] / 60, rcond=None)[0]
    assert check(Rejection(0, others, shift), W[:, 1:], p, 0.5)
    assert not check(Rejection(0, others, shift), W, p, 0.5)
    test = BasisTest(W)
    assert test.m == 4
    assert test.check(test.accepts(p, 0, tau=0.5).certificate, p, 0.5)


def test_proofs_that_overflow_underflow_or_hide_behind_others_are_false():
    p = [0.4, 0.5, 0.1]
    assert not check(Acceptance(2, np.array([1e308, 0.0])), [[-1.0], [1.0], [2.0]], p, 0.5)
    assert not check(Acceptance(2, np.array([5e-324, 0.0])), [[-0.3], [0.4], [0.6]], p, 0.5)
    beside = np.array([0.25, 0.5, 0.25, 0.0]) * (1 - 5e-11)
    beside[3] = 5e-11
    W = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]
    assert not check(Rejection(3, np.array([0, 1, 2]), np.array([0.24, -0.48, 0.24])), W, beside, 0.5)


def test_true_rejections_are_not_refused():
    W, p = [[0.0], [1.0], [2.0], [5.0]], [0.4, 0.2, 0.4, 0.0]
    assert check(Rejection(1, np.array([0, 2]), np.array([0.1, 0.1])), W, p, 0.5)
    verdict = BasisTest(np.array(W)).accepts(p, 1, tau=0.5)
    assert not verdict.accepted
    assert check(verdict.certificate, W, p, 0.5)


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
        assert not check(Rejection(1, np.array(rows), np.empty(0)), [[0.0], [1.0]], [0.5, 0.5], 0.5)


def test_rows_that_are_named_twice_prove_nothing():
    W, p = [[0.0], [1.0], [2.0]], [0.3, 0.4, 0.3]
    assert check(Rejection(1, np.array([0, 2]), np.array([0.2, 0.2])), W, p, 0.5)
    assert not check(Rejection(1, np.array([0, 2, 0]), np.array([0.1, 0.2, 0.2])), W, p, 0.5)


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
    assert check(Rejection(1, np.array([0, 2]), np.array([0.2, 0.2])), W, p, 0.5)
    assert check(Acceptance(2, np.array([0.5, 0.0])), W, p, 0.1)


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (Acceptance(3, np.array([1.0, 0.0])), "about token 3, and W has rows 0 … 2"),
        (Acceptance(-1, np.array([1.0, 0.0])), "about token -1"),
        (Acceptance(1, np.array([1.0, 0.0, 0.0])), r"λ has shape \(3,\).*2 columns.*BasisTest.weight"),
        (Rejection(1, np.array([0, 3]), np.array([0.2, 0.2])), "rows that W does not have"),
        (Rejection(1, np.array([0, -1]), np.array([0.2, 0.2])), "rows that W does not have"),
        (Rejection(1, np.array([0.0, 2.0]), np.array([0.2, 0.2])), "the number of a row"),
        (Rejection(1, np.array([0]), np.array([0.2, 0.2])), "for each shift"),
    ],
)
def test_what_is_no_certificate_for_this_w_is_refused_in_words(certificate, words):
    with pytest.raises(ValueError, match=words):
        check(certificate, [[0.0], [1.0], [2.0]], [0.3, 0.4, 0.3], 0.5)


def test_what_is_no_distribution_or_matrix_is_refused_in_words():
    proof = Acceptance(1, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="sums to 0"):
        check(proof, [[0.0], [1.0]], [0.4, 0.5], 0.5)
    with pytest.raises(ValueError, match="one row per token"):
        check(proof, [0.0, 1.0], [0.5, 0.5], 0.5)
    with pytest.raises(ValueError, match="NaN or infinite"):
        check(proof, [[np.nan], [1.0]], [0.5, 0.5], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        check(proof, [[0.0], [1.0]], [0.5, 0.5], 1.0)
