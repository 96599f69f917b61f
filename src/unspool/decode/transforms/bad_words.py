"""Bad words: ban token sequences from ever being completed.

    ban x  ⇔  some forbidden sequence ends with x and the path ends with all that comes before

As in Hugging Face's generate (Wolf et al. 2020), whose banned set this is.
papers.bib: wolf2020transformers

A single token is always banned; of a longer sequence, the last token is, where the others were just written
(in the prompt or after it; the source of an encoder–decoder is no part of its text). A string stands for the
tokens that the model's tokenizer writes it with, as it stands and after a space. A word may have other
spellings in tokens, capitalised or cut elsewhere: give those that matter. A row whose last tokens are all
banned keeps the one that the model finds most probable among the others; a ban on the whole
vocabulary is lifted (see `scores.ban`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import known_ids, phrases, within
from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.decode.transforms.sequences import due
from unspool.decode.transforms.spelling import spelled
from unspool.protocols import Step, StepModel


@dataclass(frozen=True)
class BadWords:
    """Let none of the words be written."""

    sequences: Iterable[str | Sequence[int]]
    """Strings, or sequences of token ids."""

    def __post_init__(self) -> None:
        sequences = set(phrases("BadWords.sequences", self.sequences))
        if not sequences:
            raise ValueError(
                "BadWords.sequences is empty, but needs at least one. Leave BadWords out instead."
            )
        order = sorted(sequences, key=lambda one: (isinstance(one, str), one))
        object.__setattr__(self, "sequences", tuple(order))

    def prepare(self, model: StepModel, job: Job) -> BadWords:  # noqa: ARG002
        """With token ids for every string, as it stands and after a space."""
        written = (
            (one, f" {one}") if isinstance(one, str) and not one[0].isspace() else (one,)
            for one in self.sequences
        )
        return BadWords({spelled(one, model, "bad word") for forms in written for one in forms})

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        sequences = known_ids("BadWords.sequences", self.sequences)
        within("BadWords.sequences", {sequence[-1] for sequence in sequences}, scores_NV.shape[1])
        banned = [(row, sequence[-1]) for row, sequence in due(sequences, history)]
        return ban_each(scores_NV, step, banned)
