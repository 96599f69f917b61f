"""Top-k: keep the k most probable tokens.

    keep x  ⇔  p(x) ≥ p₍ₖ₎,    p₍ₖ₎ the k-th largest probability

Fan, Lewis & Dauphin 2018 (their generation draws from the k = 10 most probable words).
papers.bib: fan2018hierarchical

Ties: every token tied with the k-th stays, so that more than k may survive (as in Hugging Face).
Differs from Hugging Face: k larger than the vocabulary is an error, not silently the whole vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import whole
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class TopK(Truncation):
    """Keep the k most probable tokens."""

    k: int = 50

    def __post_init__(self) -> None:
        whole(self, "k", at_least=1, advice="To keep everything, leave TopK out.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the k most probable tokens of each row and all that tie with the k-th."""
        V = logp_NV.shape[-1]
        if self.k > V:
            raise ValueError(
                f"TopK.k is {self.k}, but the vocabulary has {V} tokens. "
                f"Choose k ≤ {V}, or leave TopK out to keep everything."
            )
        # The smallest finite number and not −∞, so that a token that was cut does not tie with the k-th.
        least_N1 = logp_NV.topk(self.k).values[:, -1:].clamp(min=torch.finfo(logp_NV.dtype).min)
        return logp_NV >= least_N1
