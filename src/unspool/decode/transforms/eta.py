"""Eta sampling: keep the tokens above a probability that falls where the model is unsure.

    keep x  ⇔  p(x) ≥ min(η, √η · e^(−H))  or  p(x) = max p,     H = −Σ p log p

Hewitt, Manning & Liang 2022 (η-sampling; the paper's ε is η here, and its α is √ε).
papers.bib: hewitt2022truncation

Ties: equal probabilities are kept or cut together; where every token is below the threshold, all that tie for
the most probable stay. The kept set is that of Hugging Face's code; its docstring puts e^(−H) under the root.
Differs from the paper: a token exactly at the threshold stays (the paper writes >).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import number
from unspool.decode.transforms.scores import alive, precise
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class Eta(Truncation):
    """Keep tokens of probability min(η, √η · e^(−H)) or more."""

    eta: float = 9e-4

    def __post_init__(self) -> None:
        advice = "Common values are 3e-4 … 4e-3; 0 keeps everything."
        number(self, "eta", at_least=0, at_most=1, advice=advice)

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True where p reaches the row's threshold, and for the most probable tokens."""
        logp_NV = precise(logp_NV)
        # Normalised once more: survivors of earlier rules sum to 1 only up to rounding.
        exact_NV = logp_NV - logp_NV.logsumexp(dim=-1, keepdim=True)
        surprise_NV = -exact_NV.clamp(min=torch.finfo(logp_NV.dtype).min)
        entropy_N1 = (surprise_NV * exact_NV.softmax(dim=-1)).sum(dim=-1, keepdim=True)
        eta = torch.tensor(self.eta, dtype=logp_NV.dtype, device=logp_NV.device)
        threshold_N1 = torch.minimum(eta, eta.sqrt() * (-entropy_N1).exp())
        best_NV = logp_NV >= logp_NV.amax(dim=-1, keepdim=True)
        return (logp_NV.softmax(dim=-1) >= threshold_N1) & alive(logp_NV) | best_NV
