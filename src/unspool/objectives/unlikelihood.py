"""Unlikelihood: tokens that have been said already are made improbable, unless they are right again.

    L = −Σ_t Σ_{c ∈ C_t} log( 1 − p(c | y_{<t}) ),   C_t = { y_1 … y_{t−1} } ∖ { y_t }

Welleck et al. 2020, eq. 3–5 (papers.bib: welleck2020unlikelihood), which has it beside the likelihood with
weight α = 1: −log p(y_t) is the main objective. BOS, which nobody says, is no candidate: neither the first
token of a row nor one between two texts of a packed block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.search import Greedy
from unspool.interfaces import Clock, Loss, Objective, PreparedLoss, Trainable
from unspool.objectives.cross_entropy import chosen_logp, target_logp
from unspool.objectives.masked import refuse_hidden_places
from unspool.objectives.rollouts import Generating, as_tensor, nothing_to_learn, questions, rows_of

CLOSEST = 1e-5
"""−log p is held above this, so that log(1 − p) stays finite where p is 1."""


@dataclass(frozen=True)
class Unlikelihood(Objective):
    """−log(1 − p) of every token that was said before, at each target."""

    def check(self, model: Trainable) -> None:
        """Refuse a model that says no texts."""
        refuse_hidden_places(model, self)
        if model.labels is not None:
            raise ValueError("unlikelihood is of tokens that repeat, and labels are none: leave it out")

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        """The sum over all targets that count."""
        hidden_NTD, real_NT = model.hidden_for(batch), batch.weights_NU != 0
        read_NT = batch.inputs_NT
        read_MT = read_NT[:, None].expand(-1, read_NT.shape[1], -1)[real_NT]
        size: int = model.vocab_size  # type: ignore[attr-defined]
        logp_MT = chosen_logp(model.head, hidden_NTD[real_NT], read_MT, size)
        bos = None if model.tokenizer is None else model.tokenizer.bos_id  # type: ignore[attr-defined]
        counts_NTT = candidates(read_NT, batch.targets_NU, bos)
        cost_MT = unlikely(logp_MT).masked_fill(~counts_NTT[real_NT], 0.0)
        total = (cost_MT.sum(dim=1) * batch.weights_NU[real_NT]).sum()
        return Loss(total, batch.weight, {"unlikelihood": float(total.detach())})


def unlikely(logp: Tensor) -> Tensor:
    """−log(1 − p), from log p."""
    return -torch.log(-torch.expm1(logp.clamp(max=-CLOSEST)))


def candidates(read_NT: Tensor, targets_NT: Tensor, bos: int | None = None) -> Tensor:
    """(N, T, T): at target t, which of the tokens said so far count: each once, and not the right one."""
    T = read_NT.shape[1]
    said_NT = torch.arange(T, device=read_NT.device).expand_as(read_NT) > 0
    if bos is not None:
        said_NT = said_NT & (read_NT != bos)
    same_NTT = (read_NT[:, :, None] == read_NT[:, None]) & said_NT[:, None]
    first_NT = said_NT & ~same_NTT.tril(-1).any(dim=2)
    so_far_TT = torch.ones(T, T, dtype=torch.bool, device=read_NT.device).tril()
    return so_far_TT & first_NT[:, None] & (read_NT[:, None] != targets_NT[:, :, None])


@dataclass(frozen=True)
class SequenceUnlikelihood(Generating):
    """−log(1 − p) of tokens in repeated n-grams of the model's greedy texts.

    Sequence unlikelihood: where the model's own text repeats itself, the repetition is made improbable.

        L = −Σ_t [ y_t is in an n-gram of ŷ that stood there before ] · log( 1 − p(y_t | ŷ_{<t}) ),   ŷ greedy

    Welleck et al. 2020, eq. 7–8 (papers.bib: welleck2020unlikelihood), n = 4. An n-gram counts as a
    repetition wherever in the row it stood before, in what was given, too; only tokens that the model has
    said are made improbable.
    """

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
            before = () if model.is_encoder_decoder else it.prompt
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
