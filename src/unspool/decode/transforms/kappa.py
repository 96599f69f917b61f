"""The κ rule: a threshold that adapts to the number of probable tokens, relative to the model's width.

    keep x  ⇔  κ p(x) ℓ(x) ≥ g,   where κ solves  Σ_j min(1, κ p_j) = width + 1

An observation of this project: the exact basis-aware test (Finlayson et al. 2024, §4; `unspool.basis`)
depends little on W, and this is its first-order form. It costs one partial sort, without a proof. g
corresponds to τ and grows with it; `BasisTest.calibrate_kappa` fits it to a model. ℓ is 1 unless row lengths
are given (`BasisTest.row_lengths`), V numbers of W that bring the rule closer to the test.
papers.bib: finlayson2024closing

Symbols: m = width + 1. If fewer than m tokens have probability, κ is infinite and all of them stay; the most
probable token always stays. Ties: equal p(x) ℓ(x) are kept or cut together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unspool.decode.arguments import integer, number
from unspool.decode.transforms.scores import Truncation, alive, precise

if TYPE_CHECKING:
    from unspool.basis import KappaRule, RowLengths


@dataclass(frozen=True)
class Kappa(Truncation):
    """Keep tokens whose probability, times κ (and the length of their row), is g or more."""

    g: float = number(at_least=0, advice="0 keeps everything; 0.2 … 40 correspond to τ from 0.01 to 0.9.")
    width: int = integer(at_least=0, advice="Give the width of the model, such as 576.")
    """The width of the model's output layer (or the rank that the exact test would look at)."""
    lengths: RowLengths | None = None
    """ℓ, the row lengths that g was fitted with; None: ℓ = 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lengths is not None and not hasattr(self.lengths, "for_vocabulary"):
            raise TypeError(
                f"Kappa.lengths is a {type(self.lengths).__name__}, but must be unspool.basis.RowLengths. "
                f"Take BasisTest(W, rank).row_lengths(p), or say RowLengths(lengths)."
            )

    @classmethod
    def of(cls, rule: KappaRule, tau: float) -> Kappa:
        """The transform of a fitted rule at τ."""
        return cls(rule.threshold(tau), rule.m - 1, rule.lengths)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        logp_NV = precise(logp_NV)
        threshold_N1 = math.log(self.g) - log_kappa(logp_NV, self.width + 1) if self.g else -math.inf
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        return (self._weighted(logp_NV) >= threshold_N1) & alive(logp_NV) | best_NV

    def _weighted(self, logp_NV: Tensor) -> Tensor:
        """log pℓ."""
        if self.lengths is None:
            return logp_NV
        length_V = torch.tensor(self.lengths.for_vocabulary(logp_NV.shape[1]), device=logp_NV.device)
        return logp_NV + length_V.log()


def log_kappa(logp_NV: Tensor, m: int) -> Tensor:
    """(N, 1): log κ, +∞ if fewer than m tokens have probability.

    If the r most probable tokens saturate, κ = (m − r) / (mass of the others); r is the first rank whose next
    token does not saturate.
    """
    if m > logp_NV.shape[1]:
        return logp_NV.new_full((len(logp_NV), 1), math.inf)
    top_NM, token_NM = logp_NV.topk(m)
    rest_NV = logp_NV.sub(top_NM[:, -1:]).scatter_(1, token_NM, -math.inf).exp_()
    top_NM = top_NM.double()
    rest_N1 = top_NM[:, -1:] + rest_NV.sum(dim=-1, keepdim=True, dtype=torch.float64).log()
    # Sum from the last token on, to avoid cancellation.
    beyond_NM = torch.cat([top_NM, rest_N1], dim=-1).flip(-1).logcumsumexp(dim=-1).flip(-1)[:, :m]
    log_kappa_NM = (m - torch.arange(m, device=logp_NV.device)).double().log() - beyond_NM
    fits_NM = log_kappa_NM + top_NM <= 0
    # If no rank fits because of rounding, all m saturate.
    log_kappa_N1 = torch.where(
        fits_NM.any(dim=-1, keepdim=True),
        log_kappa_NM.gather(1, fits_NM.int().argmax(dim=-1, keepdim=True)),
        -top_NM[:, -1:],
    )
    return log_kappa_N1.masked_fill(~alive(top_NM[:, -1:]), math.inf).to(logp_NV.dtype)
