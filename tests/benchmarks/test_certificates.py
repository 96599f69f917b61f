"""The judge of certificates, judged by hand."""

import importlib.util
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from unspool.basis import Acceptance, Rejection


@pytest.fixture(scope="module")
def certificates():
    path = Path(__file__).resolve().parents[2] / "benchmarks/certificates.py"
    spec = importlib.util.spec_from_file_location("benchmarks_certificates", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ones(*rows):
    return [[Fraction(x) for x in row] for row in rows]


def test_a_linear_program_by_hand(certificates):
    rows = ones((0, 1), (2, 1))
    half = [Fraction(1, 2)] * 2
    assert certificates.feasible(rows, half, [Fraction(1), Fraction(1)])  # one half of each
    assert not certificates.feasible(rows, half, [Fraction(1), Fraction(1) + Fraction(1, 10**30)])
    assert not certificates.feasible(rows, half, [Fraction(2), Fraction(1)])
    assert certificates.feasible(rows, half, [Fraction(0), Fraction(0)])


def test_an_acceptance_is_true_up_to_the_boundary_and_not_on_it(certificates):
    W, p = np.array([[0.0], [1.0]]), np.array([0.5, 0.5])
    judge, constant = certificates.Judge(), Acceptance(1, np.array([0.0, 1.0]))
    # f = c/2, and p̂ᵢ is one half: true for every c < 1
    assert judge(certificates.Claim("", constant, W, p, 0.49))
    assert not judge(certificates.Claim("", constant, W, p, 0.5))
    assert judge(certificates.Claim("", constant, W, p, np.nextafter(0.5, 0)))


def test_a_rejection_is_true_if_something_next_to_it_balances(certificates):
    W, p = np.array([[0.0], [1.0], [2.0]]), np.array([0.3, 0.4, 0.3])
    judge = certificates.Judge()

    def claim(left, right, tau=0.5):
        return certificates.Claim("", Rejection(1, np.array([0, 2]), np.array([left, right])), W, p, tau)

    assert judge(claim(0.2, 0.2))
    assert judge(claim(0.2 + 1e-9, 0.2))
    assert not judge(claim(0.2 + 1e-5, 0.2))
    assert not judge(claim(0.2, 0.2, tau=0.3))  # up to .3·3/7 more: not enough
    assert not judge(claim(np.nan, 0.2))


def test_wrong_certificates_are_counted(certificates, monkeypatch):
    monkeypatch.setattr(certificates, "verify_certificate", lambda *_: True)
    trusting = certificates.tally(40)
    assert {claim.kind for claim in trusting.wrong} >= {"overflow", "underflow", "beside a balance"}
    monkeypatch.setattr(certificates, "verify_certificate", lambda *_: False)
    strict = certificates.tally(40)
    assert sum(claim.kind.startswith("own") for claim in strict.wrong) == strict.own


def test_the_three_named_forgeries_are_false(certificates):
    judge = certificates.Judge()
    kinds = [claim.kind for claim in certificates.named() if not judge(claim)]
    assert kinds == ["overflow", "underflow", "beside a balance"]


def test_it_prints_what_it_found_and_ends_with_nought(certificates, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["certificates.py", "--count", "30"])
    assert certificates.main() == 0
    said = capsys.readouterr().out
    assert "of the solver's own" in said
    assert "wrong: 0" in said
