"""The objective of masked diffusion: every place is hidden with the same probability t, itself drawn anew.

    t ~ U(0, 1),      L = E_t[ (1/t) Σ_{i hidden} −log p(y_i | y_shown, x) ]  ≥  −log p(y | x)

Sahoo et al. 2024, eq. 11 (papers.bib: sahoo2024simple); Nie et al. 2025, eq. 3 (papers.bib: nie2025large): an
upper bound of the negative log-likelihood. A t below `least` is raised to it, for 1/t would be all there is.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.objectives.hidden_places import HidingObjective, real


@dataclass(frozen=True)
class MaskedDiffusionLoss(HidingObjective):
    """−log p of what stands at hidden places, each hidden with probability t and counted 1/t times."""

    least: float = 0.02
    """The least t."""

    def __post_init__(self) -> None:
        if not 0.0 < self.least < 1.0:
            raise ValueError(f"least={self.least} must be above 0 and below 1")

    def weigh(self, lengths_N: Tensor, rate_N: Tensor, place_NT: Tensor) -> Tensor:
        """(N, T): 1/t at hidden places."""
        t_N1 = rate_N[:, None].clamp(min=self.least)
        return ((place_NT < t_N1) & real(lengths_N, place_NT.shape[1])).float() / t_N1
