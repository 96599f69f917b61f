"""Sequence-level distillation: a student learns what its teacher answers, not what the data has.

    L = −Σ_t log p(ŷ_t | ŷ_{<t}, x),   ŷ = the teacher's beam answer to x

Kim & Rush 2016, §3.2 (papers.bib: kim2016sequence). The teacher answers each question once; its answers are
kept in memory, by how long they might be. A language model's questions are the first tokens of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unspool.data.batch import Batch
from unspool.data.encoded_store import hash_tokenizer
from unspool.decode.search import Beam
from unspool.interfaces import Clock, PreparedLoss, Trainable
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.masked import refuse_hidden_places
from unspool.objectives.rollouts import Generating, nothing_to_learn, questions, rows_of


@dataclass(frozen=True)
class Distillation(Generating):
    """−log p of a teacher's beam answers."""

    teacher: str = ""
    """The teacher, by any name that `us.load` knows: a run folder, for example. It has the student's
    vocabulary."""
    beam: int = 5
    """Of the teacher's search."""
    smoothing: float = 0.0
    """The share of probability that is spread over the whole vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.teacher:
            raise ValueError("distillation needs a teacher: name a model, such as a run folder")
        if self.beam < 1:
            raise ValueError(f"beam={self.beam} must be at least 1")
        CrossEntropy(self.smoothing)

    def files(self) -> Mapping[str, str]:
        """The teacher, where it is on the disk."""
        return {"teacher": self.teacher}

    @cached_property
    def _model(self) -> Any:
        from unspool.models.loading.model_names import load

        return load(self.teacher)

    @cached_property
    def _known(self) -> dict[tuple[int, tuple[int, ...]], tuple[int, ...]]:
        """Limit and prompt → answer."""
        return {}

    def check(self, model: Trainable) -> None:
        """Refuse a teacher that speaks other tokens."""
        super().check(model)
        refuse_hidden_places(self._model, self)
        own: Any = model
        sides = [
            (self._model.is_encoder_decoder, model.is_encoder_decoder),
            (_tokens(self._model), _tokens(own)),
        ]
        if any(theirs != ours for theirs, ours in sides):
            raise ValueError(
                f"the teacher {self.teacher!r} is no model of the same kind and vocabulary as the student: "
                "train both on the same data, with the same [text]"
            )

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:
        """The sum over the teacher's tokens."""
        asked = questions(model, batch, self.prompt)
        if not asked:
            return nothing_to_learn("nll")
        keys = [(self.limit(self._model, it), it.prompt) for it in asked]
        new = {key: it for key, it in zip(keys, asked, strict=True) if key not in self._known}
        if new:
            found = self.answers(self._model, list(new.values()), Beam(self.beam))
            self._known.update({key: out[0].tokens for key, out in zip(new, found, strict=True)})
        made = rows_of(model, batch, asked, [self._known[key] for key in keys])
        return PreparedLoss(made.weight, lambda reader: CrossEntropy(self.smoothing)(reader, made, clock))


def _tokens(model: Any) -> list[Any]:
    """What tells two vocabularies apart."""
    texts = [it for it in (model.tokenizer, model.source_tokenizer) if it is not None]
    return [model.vocab_size, model.source_vocab_size, *map(hash_tokenizer, texts)]
