"""Objectives that draw answers and ask how much these are worth: what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unspool.objectives.rewards import check_name, reward_of
from unspool.objectives.rollouts import Generating
from unspool.protocols import Trainable


@dataclass(frozen=True)
class Rewarded(Generating):
    """An objective that asks what the model's own answers are worth."""

    reward: str = "chrf"
    """bleu, chrf, exact_match, or a Python function (said, wanted) → number, as module:function; this needs
    --trust-code."""
    samples: int = 1
    """Answers that are drawn for each question."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.reward)

    @property
    def rewarded(self) -> bool:
        """It does."""
        return True

    @property
    def draws(self) -> bool:
        """Answers."""
        return True

    def check(self, model: Trainable) -> None:
        """Refuse a model that says no texts, and a reward that is not there."""
        super().check(model)
        _needs_text(model)
        reward_of(self.reward)


def worth(model: Any, reward: Any, said: Sequence[int], wanted: Sequence[int]) -> float:
    """The reward of an answer."""
    value: float = reward(model.text.decode(said), model.text.decode(wanted))
    return value


def _needs_text(model: Any) -> None:
    if model.text is None:
        raise ValueError("a reward compares texts, and this model has no tokenizer: build it with a text")
