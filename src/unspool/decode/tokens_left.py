"""How many tokens a model may write after a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from unspool.protocols import StepModel


def tokens_left(model: StepModel, prompt: Sequence[int]) -> int | None:
    """What the model's context leaves; None where it has no limit.

    A source has the limit to itself, and the model knows what it reads of it: an answer shares its own with
    BOS alone. A search may read every token that it writes, the last one, too.
    """
    if model.context is None:
        return None
    return max(1, model.context - 1) if model.answers else model.context - len(prompt)
