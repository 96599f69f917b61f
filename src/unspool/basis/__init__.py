"""The basis-aware test: which improbable tokens a model's own geometry proves possible, with certificates.

from unspool.basis import BasisTest

test = BasisTest(W, rank=100)              # W: the model's output matrix, (vocabulary, width)
verdict = test.accepts(p, i, tau=0.1)      # p: the model's own next-token probabilities
bool(verdict), verdict.how, verdict.certificate

Names are imported when first used: scipy takes a moment, and decoding mostly does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.basis.basis_test import BasisStep as BasisStep, BasisTest as BasisTest
    from unspool.basis.calibration import Calibration as Calibration, calibrate_kappa as calibrate_kappa
    from unspool.basis.certificate import Acceptance as Acceptance, Rejection as Rejection, Verdict as Verdict
    from unspool.basis.kappa_rule import KappaRule as KappaRule, KappaStep as KappaStep, kappa as kappa
    from unspool.basis.linear_program import Reference as Reference, reference as reference
    from unspool.basis.row_lengths import RowLengths as RowLengths
    from unspool.basis.theory import (
        delta_from_tau as delta_from_tau,
        optimality_residual as optimality_residual,
        overestimation as overestimation,
        tau_from_delta as tau_from_delta,
        underestimation as underestimation,
    )
    from unspool.basis.verifier import check as check

__all__, __getattr__, __dir__ = lazy_exports(__name__)
