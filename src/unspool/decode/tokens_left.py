"""How many tokens a model may write after a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from unspool.protocols import StepModel


def tokens_left(model: StepModel, prompt: Sequence[int]) -> int | None:
    """What the model's context leaves; None if it has no limit.

    A source does not count: an answer shares the context with BOS alone. A search may read every token that
    it writes, the last one, too. If several models or prompts are read side by side, the least one counts.
    """
    read = model.prompts_read(prompt)
    if read:
        left = [tokens_left(part, other) for part, other in read]
        return min((free for free in left if free is not None), default=None)
    if model.context is None:
        return None
    return max(1, model.context - 1) if model.answers else model.context - len(prompt)
