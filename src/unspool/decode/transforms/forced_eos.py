"""Forced end: a text that has not ended before ends with its length-th token.

    p′(x) = [x ∈ EOS] / |EOS|   where length − 1 tokens were generated

As `forced_eos_token_id` in Hugging Face's generate (Wolf et al. 2020).
papers.bib: wolf2020transformers

Differs from Hugging Face: `length` counts generated tokens, without the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from unspool.decode.arguments import ends, ids, keep, whole, within
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.transforms.force import force
from unspool.decode.transforms.scores import peaks
from unspool.protocols import Step, StepModel


@dataclass(frozen=True)
class ForcedEOS:
    """End every text at `length` tokens at the latest, the end counted."""

    length: int
    eos: int | Iterable[int] | None = None
    """One end-of-text token, or several, then equally probable, kept as a tuple; None for the model's."""

    def __post_init__(self) -> None:
        whole(self, "length", at_least=1, advice="Count the end itself.")
        if self.eos is not None:
            keep(self, eos=ids("ForcedEOS.eos", self.eos))

    def prepare(self, model: StepModel, job: Job) -> ForcedEOS:  # noqa: ARG002
        """With the job's end-of-text tokens, where none were given."""
        return self if self.eos is not None else replace(self, eos=ends("ForcedEOS.eos", job.eos))

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:  # noqa: ARG002
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        eos = ends("ForcedEOS.eos", self.eos)
        within("ForcedEOS.eos", eos, scores_NV.shape[1])
        last = [row for row, path in enumerate(history) if len(path.tokens) == self.length - 1]
        return force(scores_NV, last, eos)
