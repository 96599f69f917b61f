"""Forced beginning: the first token generated is a given one.

    p′(x) = [x = b]   where nothing was generated yet

Liu et al. 2020 (mBART: the first token names the target language); `forced_bos_token_id` in Hugging Face.
papers.bib: liu2020mbart

Differs from Hugging Face: it counts a decoder's tokens and forces the second one, after the start token;
here the first *generated* token is forced, whatever the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import ids, keep, within
from unspool.decode.path import Path
from unspool.decode.transforms.force import force
from unspool.decode.transforms.scores import peaks
from unspool.protocols import Step


@dataclass(frozen=True)
class ForcedBOS:
    """Begin every text with this token."""

    token: int

    def __post_init__(self) -> None:
        keep(self, token=ids("ForcedBOS.token", [self.token])[0])

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        within("ForcedBOS.token", [self.token], scores_NV.shape[1])
        return force(scores_NV, [row for row, path in enumerate(history) if not path.tokens], (self.token,))
