"""The basis-aware test: which improbable tokens a model's own geometry proves possible, with certificates.

from unspool.basis import BasisTest

test = BasisTest(W, rank=100)              # W: the model's output matrix, (vocabulary, width)
verdict = test.accepts(p, i, tau=0.1)      # p: the model's own next-token probabilities
bool(verdict), verdict.how, verdict.certificate
"""

from unspool.basis.basis_step import BasisStep
from unspool.basis.basis_test import BasisTest
from unspool.basis.calibration import Calibration, calibrate_kappa
from unspool.basis.certificate import Acceptance, Rejection, Verdict
from unspool.basis.kappa_rule import KappaRule, KappaStep, kappa
from unspool.basis.linear_program import Reference, reference
from unspool.basis.row_lengths import RowLengths
from unspool.basis.theory import (
    delta_from_tau,
    optimality_residual,
    overestimation,
    tau_from_delta,
    underestimation,
)
from unspool.basis.verification import check

__all__ = [
    "Acceptance",
    "BasisStep",
    "BasisTest",
    "Calibration",
    "KappaRule",
    "KappaStep",
    "Reference",
    "Rejection",
    "RowLengths",
    "Verdict",
    "calibrate_kappa",
    "check",
    "delta_from_tau",
    "kappa",
    "optimality_residual",
    "overestimation",
    "reference",
    "tau_from_delta",
    "underestimation",
]
