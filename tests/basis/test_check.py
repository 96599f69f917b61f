from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

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
    for _ in range(60):
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


@pytest.mark.parametrize("tau", [0.05, 0.2])
def test_a_certificate_is_for_its_tau(model, tau):
    test, p = BasisTest(model.W), model.p(1)
    step = test.step(p)
    low, high = test.critical_tau(p, int(step.distribution.order_N[10]))
    accepted = step.accepts(int(step.distribution.order_N[10]), tau=low)
    assert test.check(accepted.certificate, p, low * 0.5)
    assert not test.check(accepted.certificate, p, min(high * 1.5, 0.999))
