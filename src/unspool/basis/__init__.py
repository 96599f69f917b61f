"""The basis-aware test: improbable tokens that a model's output matrix proves possible, with certificates.

from unspool.basis import BasisTest

test = BasisTest(W, rank=100)              # W: the model's output matrix, (vocabulary, width)
verdict = test.accepts(p, i, tau=0.1)      # p: the model's own next-token probabilities
bool(verdict), verdict.method, verdict.certificate

Names are imported on first use, because scipy is slow to import and most decoding does not need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.lazy import lazy_exports

if TYPE_CHECKING:
    from unspool.basis.basis_test import BasisStep as BasisStep, BasisTest as BasisTest
    from unspool.basis.kappa_rule import KappaRule as KappaRule, RowLengths as RowLengths, kappa as kappa
    from unspool.basis.linear_program import solve_linear_program as solve_linear_program
    from unspool.basis.theory import (
        Acceptance as Acceptance,
        Rejection as Rejection,
        Verdict as Verdict,
        tau_from_delta as tau_from_delta,
    )
    from unspool.basis.verifier import verify_certificate as verify_certificate

__all__, __getattr__, __dir__ = lazy_exports(__name__)
