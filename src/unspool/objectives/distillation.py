"""Sequence-level distillation: a student learns the beam search outputs of its teacher.

    L = −Σ_t log p(ŷ_t | ŷ_{<t}, x),   ŷ = the teacher's beam output for x

Kim & Rush 2016, §3.2 (papers.bib: kim2016sequence). The teacher decodes each prompt once; its outputs are
cached in memory by prompt and length limit. The prompts of a language model are the first tokens of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unspool.arguments import integer, number
from unspool.data.batch import Batch
from unspool.data.encoded_store import hash_tokenizer
from unspool.decode.search import Beam
from unspool.interfaces import Clock, PreparedLoss, Trainable
from unspool.objectives.cross_entropy import CrossEntropy
from unspool.objectives.masked import check_not_masked_model
from unspool.objectives.rollouts import RolloutObjective, empty_loss, make_prompts, rollout_batch


@dataclass(frozen=True)
class Distillation(RolloutObjective):
    """−log p of a teacher's beam outputs."""

    teacher: str = ""
    """A model name for `us.load`, such as a run folder; the vocabulary must equal the student's."""
    beam: int = integer(5, at_least=1)
    """The beam width of the teacher."""
    smoothing: float = number(0.0, at_least=0, below=1)
    """The share of probability spread over the whole vocabulary."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.teacher:
            raise ValueError("distillation needs a teacher: name a model, such as a run folder")

    def files(self) -> Mapping[str, str]:
        return {"teacher": self.teacher}

    @cached_property
    def _teacher(self) -> Any:
        from unspool.models.loading.model_names import load

        return load(self.teacher)

    @cached_property
    def _cache(self) -> dict[tuple[int, tuple[int, ...]], tuple[int, ...]]:
        """Limit and prompt → output."""
        return {}

    def check(self, model: Trainable) -> None:
        super().check(model)
        check_not_masked_model(self._teacher, self)
        if _kind_and_vocabulary(self._teacher) != _kind_and_vocabulary(model):
            raise ValueError(
                f"the teacher {self.teacher!r} and the student differ in kind or vocabulary: train both "
                "on the same data with the same [tokenizer]"
            )

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:
        prompts = make_prompts(model, batch, self.prompt)
        if not prompts:
            return empty_loss("nll")
        keys = [(self.limit(self._teacher, prompt), prompt.prompt) for prompt in prompts]
        new = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in self._cache}
        if new:
            outputs = self.generate(self._teacher, list(new.values()), Beam(self.beam))
            self._cache.update({key: out[0].tokens for key, out in zip(new, outputs, strict=True)})
        rollout_rows = rollout_batch(model, batch, prompts, [self._cache[key] for key in keys])
        return PreparedLoss(
            rollout_rows.weight, lambda reader: CrossEntropy(self.smoothing)(reader, rollout_rows, clock)
        )


def _kind_and_vocabulary(model: Any) -> list[Any]:
    tokenizers = [it for it in (model.tokenizer, model.source_tokenizer) if it is not None]
    sizes = [model.vocab_size, model.source_vocab_size]
    return [model.is_encoder_decoder, *sizes, *map(hash_tokenizer, tokenizers)]
