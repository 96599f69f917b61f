"""Which tokens a path holds already, and how often: what the repetition penalties count.

Ids that the scores have no column for are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.decode.arguments import LARGEST_BIAS, flag, number
from unspool.decode.path import Path


def tokens_so_far(path: Path, prompt: bool) -> tuple[int, ...]:
    """The tokens of a path, after those of its prompt if asked for."""
    return path.prompt + path.tokens if prompt else path.tokens


def occurrences(history: Sequence[Path], prompt: bool, scores_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(row, token, count) of every token that occurs on the row's path, each pair once."""
    V = scores_NV.shape[1]
    found = [
        (row, token, count)
        for row, path in enumerate(history)
        for token, count in Counter(tokens_so_far(path, prompt)).items()
        if token < V
    ]
    row_M, token_M, count_M = (
        torch.tensor(found, dtype=torch.long, device=scores_NV.device).view(-1, 3).unbind(1)
    )
    return row_M, token_M, count_M


@dataclass(frozen=True)
class OccurrencePenalty:
    """The settings of a penalty that is subtracted from tokens which occurred."""

    penalty: float
    prompt: bool = False
    """Whether tokens of the prompt count."""

    def __post_init__(self) -> None:
        limits = {"at_least": -LARGEST_BIAS, "at_most": LARGEST_BIAS}
        number(self, "penalty", **limits, advice="Common values are 0.1 … 2; 0 is off.")
        flag(self, "prompt", advice="It says whether tokens of the prompt count.")
