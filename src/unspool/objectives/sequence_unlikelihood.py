"""Sequence unlikelihood: where the model's own text repeats itself, the repetition is made improbable.

    L = −Σ_t [ y_t is in an n-gram of ŷ that stood there before ] · log( 1 − p(y_t | ŷ_{<t}) ),   ŷ greedy

Welleck et al. 2020, eq. 7–8 (papers.bib: welleck2020unlikelihood), n = 4. An n-gram counts as a repetition
wherever in the row it stood before, in what was given, too; only tokens that the model has said are made
improbable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unspool.data.batch import Batch
from unspool.decode.search import Greedy
from unspool.objectives.chosen_logp import target_logp
from unspool.objectives.rollouts import Generating, as_tensor, nothing_to_learn, questions, rows_of
from unspool.objectives.unlikelihood import unlikely
from unspool.protocols import Clock, Loss, PreparedLoss, Trainable


@dataclass(frozen=True)
class SequenceUnlikelihood(Generating):
    """−log(1 − p) of tokens in repeated n-grams of the model's greedy texts."""

    n: int = 4
    """Of the n-grams."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < 1:
            raise ValueError(f"n={self.n} must be at least 1")

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:  # noqa: ARG002
        """The sum over all tokens that were said; stats has how many of them repeat."""
        asked = questions(model, batch, self.prompt)
        if not asked:
            return nothing_to_learn("repeated")
        said = [group[0].tokens for group in self.answers(model, asked, Greedy())]
        made = rows_of(model, batch, asked, said)
        T = made.targets_NU.shape[1]
        marks = []
        for it, tokens in zip(asked, said, strict=True):
            before = () if model.answers else it.prompt
            marked = repeated((*before, *tokens), self.n)[len(before) :]
            skipped = max(0, len(before) - 1)
            marks.append([0.0] * skipped + marked + [0.0] * (T - skipped - len(marked)))

        def compute(reader: Any) -> Loss:
            logp_NT = target_logp(reader, made)
            marks_NT = as_tensor([mark for row in marks for mark in row], logp_NT).view_as(logp_NT)
            total = (marks_NT * unlikely(logp_NT)).sum()
            return Loss(total, made.weight, {"repeated": float(marks_NT.sum())})

        return PreparedLoss(made.weight, compute)


def repeated(tokens: Sequence[int], n: int) -> list[float]:
    """1 for each token that is in an n-gram which stood there before, else 0."""
    marks, seen = [0.0] * len(tokens), set[tuple[int, ...]]()
    for end in range(n, len(tokens) + 1):
        gram = tuple(tokens[end - n : end])
        if gram in seen:
            marks[end - n : end] = [1.0] * n
        seen.add(gram)
    return marks
