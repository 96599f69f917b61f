"""Top-k: keep the k most probable tokens.

    keep x  ⇔  p(x) ≥ p₍ₖ₎,    p₍ₖ₎ the k-th largest probability

Fan, Lewis & Dauphin 2018, §5 (generation with k = 10).
papers.bib: fan2018hierarchical

Ties: every token tied with the k-th stays, so that more than k may survive (as in Hugging Face).
Differs from Hugging Face: k larger than the vocabulary is an error, not silently the whole vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unspool.decode.transforms.arguments import whole
from unspool.decode.transforms.scores import alive
from unspool.decode.transforms.truncation import Truncation


@dataclass(frozen=True)
class TopK(Truncation):
    """Keep the k most probable tokens."""

    k: int = 50

    def __post_init__(self) -> None:
        whole("TopK.k", self.k, at_least=1, advice="To keep everything, leave TopK out.")

    def keeps(self, logp_NV: Tensor) -> Tensor:
        """True for the k most probable tokens of each row and all that tie with the k-th."""
        V = logp_NV.shape[-1]
        if self.k > V:
            raise ValueError(
                f"TopK.k is {self.k}, but the vocabulary has {V} tokens. "
                f"Choose k ≤ {V}, or leave TopK out to keep everything."
            )
        return (logp_NV >= logp_NV.topk(self.k).values[:, -1:]) & alive(logp_NV)
