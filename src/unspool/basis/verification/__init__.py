"""Whether a certificate is true: decided in rational arithmetic, without a line of the solver's."""

from unspool.basis.verification.verifier import check

__all__ = ["check"]
