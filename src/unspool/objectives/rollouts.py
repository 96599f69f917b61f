"""What a model says by itself while it learns, and batches made of that.

    encoder–decoder   the source is asked; the whole target is the right answer
    language model    the first tokens of a row are asked; the rest of the row is the right answer

Texts come from the model's own decoders (`decode.generate`), without gradients and without dropout. Answers
depend on the seed of the row and the length of its right answer: they are the same in any batch, and when a
run is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.decode.output import Output
from unspool.decode.run import Run
from unspool.interfaces import Clock, Decoder, Loss, Objective, PreparedLoss, Trainable
from unspool.objectives.masked import refuse_hidden_places

ROWS = 4096
"""Decoded side by side, at most."""


@dataclass(frozen=True)
class Question:
    """What is asked of the model, and the right answer."""

    row: int
    """Of the batch."""
    prompt: tuple[int, ...]
    wanted: tuple[int, ...]
    """The right answer, as a rule with its end-of-text token."""
    seed: int = 0
    """Of what is drawn."""


@dataclass(frozen=True)
class Generating(Objective):
    """An objective that looks at what the model says by itself."""

    prompt: int = 8
    """Of a language model's row, how many tokens are given: the rest is to be said. An encoder–decoder is
    given the source."""
    stretch: float = 1.5
    """The longest answer, in lengths of the right one."""

    def __post_init__(self) -> None:
        if self.prompt < 1:
            raise ValueError(f"prompt={self.prompt} must be at least 1: the tokens that are given")
        if not 0.0 < self.stretch < math.inf:
            raise ValueError(f"stretch={self.stretch} must be above 0, and finite")

    @property
    def own_batches(self) -> bool:
        """It has the model read what it said."""
        return True

    def check(self, model: Trainable) -> None:
        """Refuse a model that says no texts."""
        refuse_hidden_places(model, self)
        if model.labels is not None:
            raise ValueError(
                f"{type(self).__name__} learns from what a model says by itself, and a "
                f"{type(model).__name__} says labels, no texts: choose cross_entropy"
            )

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        """Generate, then the sum over what was said."""
        return self.prepare(model, batch, clock).compute(model)

    def limit(self, model: Any, question: Question) -> int:
        """How many tokens an answer may have."""
        most = math.ceil(self.stretch * len(question.wanted))
        if model.context is not None:
            most = min(most, model.context - self._read(model, question))
        return max(1, most)

    def answers(
        self, model: Any, questions: Sequence[Question], decoder: Decoder, n: int = 1
    ) -> list[list[Output]]:
        """`n` answers to each question, some fewer where a search finds no more."""
        limits = tuple(self.limit(model, it) for it in questions)
        run = Run(
            model,
            [it.prompt for it in questions],
            decoder,
            n=n,
            max_new_tokens=max(limits),
            seed=[it.seed for it in questions],
            batch_size=ROWS,
        )
        return run.with_job(limits=tuple(map(min, run.job.limits, limits))).outputs()

    @staticmethod
    def _read(model: Any, question: Question) -> int:
        return 1 if model.is_encoder_decoder else len(question.prompt)


def questions(model: Trainable, batch: Batch, prompt: int) -> list[Question]:
    """One for each row of the batch; a row that leaves nothing to be said is left out."""
    found = []
    seeds_N = torch.randint(1 << 62, (len(batch.lengths_N),)) if batch.seeds_N is None else batch.seeds_N
    seeds = seeds_N.tolist()
    for row, length in enumerate(batch.lengths_N.tolist()):
        said = batch.targets_NU[row, :length].tolist()
        if model.is_encoder_decoder:
            assert batch.source_NS is not None
            assert batch.source_lengths_N is not None
            source = batch.source_NS[row, : int(batch.source_lengths_N[row])].tolist()
            found.append(Question(row, tuple(source), tuple(said), seeds[row]))
        else:
            whole = (int(batch.inputs_NT[row, 0]), *said)
            found.append(Question(row, whole[:prompt], whole[prompt:], seeds[row]))
    return [it for it in found if it.wanted]


def rows_of(
    model: Trainable, batch: Batch, asked: Sequence[Question], said: Sequence[Sequence[int]]
) -> Batch:
    """A batch to read answers with, one for each question: only their tokens count."""
    wholes = [
        (int(batch.inputs_NT[it.row, 0]), *tokens) if model.is_encoder_decoder else (*it.prompt, *tokens)
        for it, tokens in zip(asked, said, strict=True)
    ]
    lengths_N = torch.tensor([len(it) - 1 for it in wholes])
    skipped_N = torch.tensor([0 if model.is_encoder_decoder else len(it.prompt) - 1 for it in asked])
    tokens_NT = torch.zeros(len(wholes), int(lengths_N.max()) + 1, dtype=torch.long)
    for row, whole in enumerate(wholes):
        tokens_NT[row, : len(whole)] = torch.tensor(whole)
    place_T = torch.arange(tokens_NT.shape[1] - 1)
    counts_NT = (place_T >= skipped_N[:, None]) & (place_T < lengths_N[:, None])
    rows_N = torch.tensor([it.row for it in asked], device=batch.inputs_NT.device)
    made = Batch(
        tokens_NT[:, :-1],
        lengths_N,
        tokens_NT[:, 1:],
        counts_NT.float(),
        None if batch.source_NS is None else batch.source_NS[rows_N],
        None if batch.source_lengths_N is None else batch.source_lengths_N[rows_N],
    )
    return made.to(batch.inputs_NT.device)


def nothing_learnt(model: Any) -> Tensor:
    """0, with a gradient of 0 for every weight: the loss where nothing can be asked."""
    learns = [it for it in model.parameters() if it.requires_grad]
    return torch.stack([0.0 * it.sum() for it in learns]).sum()


def nothing_to_learn(*stats: str) -> PreparedLoss:
    """The loss of a batch in which nothing can be asked."""
    return PreparedLoss(0.0, lambda model: Loss(nothing_learnt(model), 0.0, dict.fromkeys(stats, 0.0)))


def as_tensor(values: Sequence[float], like: Tensor) -> Tensor:
    """Numbers beside a tensor."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)
