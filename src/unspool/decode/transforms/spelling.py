"""Words as token ids: how the model's tokenizer writes them where a text goes on."""

from __future__ import annotations

from collections.abc import Sequence

from unspool.protocols import StepModel


def spelled(words: str | Sequence[int], model: StepModel, role: str) -> tuple[int, ...]:
    """Token ids as they are; a string as the tokenizer writes it, without what it puts before every text."""
    if not isinstance(words, str):
        return tuple(words)
    if model.text is None:
        raise ValueError(
            f"the {role} {words!r} needs a tokenizer, and this model has none. Give it as token ids."
        )
    tokens = model.text.encode(words)
    ids = tuple(tokens[1:] if tokens and tokens[0] == model.text.bos_id else tokens)
    if not ids:
        raise ValueError(f"the {role} {words!r} has no tokens in this model's vocabulary. Leave it out.")
    return ids
