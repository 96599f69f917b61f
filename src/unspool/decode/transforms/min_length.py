"""Minimum length: ban the end of the text until enough tokens have been written.

    ban EOS  ⇔  fewer than n tokens were generated

As `min_new_tokens` in Hugging Face's generate (Wolf et al. 2020); its `min_length` counts the prompt, too.
papers.bib: wolf2020transformers

The n-th token is the last that may not be an end: a text of finish "eos" holds at least n tokens before it.
A row that has nothing but an end left continues with the token that the model finds most probable among the
others (see `scores.ban`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unspool.decode.arguments import ends, ids, keep, whole, within
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.transforms.scores import ban, peaks
from unspool.protocols import Step, StepModel


@dataclass(frozen=True)
class MinLength:
    """Let no text end before n tokens."""

    n: int
    eos: int | Iterable[int] | None = None
    """One end-of-text token, or several, kept as a tuple; None for those of the model."""

    def __post_init__(self) -> None:
        whole(self, "n", at_least=0, advice="0 is off.")
        if self.eos is not None:
            keep(self, eos=ids("MinLength.eos", self.eos))

    def prepare(self, model: StepModel, job: Job) -> MinLength:  # noqa: ARG002
        """With the job's end-of-text tokens, where none were given."""
        return self if self.eos is not None else replace(self, eos=ends("MinLength.eos", job.eos))

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        eos = ends("MinLength.eos", self.eos)
        within("MinLength.eos", eos, scores_NV.shape[1])
        short = [row for row, path in enumerate(history) if len(path.tokens) < self.n]
        if not short:
            return scores_NV
        banned_NV = torch.zeros_like(scores_NV, dtype=torch.bool)
        banned_NV[torch.tensor(short)[:, None], torch.tensor(eos)] = True
        return ban(scores_NV, step, banned_NV)
