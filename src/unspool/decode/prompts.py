"""What may be a prompt, and its token ids.

A prompt is a string, a row of token ids (a list, a tuple, a NumPy array or a tensor), or the messages of a
chat. Several prompts are a list of these, or a matrix of ids with a row for each.

A string may spell special tokens of the model's tokenizer; the messages of a chat may not, only its template.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from unspool.interfaces import StepModel, TokenizerLike

Message = Mapping[str, str]
Prompt = str | Sequence[int] | Sequence[Message]

BYTES = bytes | bytearray | memoryview
"""Sequences of small whole numbers to Python, and texts that are not decoded yet to everybody else."""
EXPECTED = "a string, token ids, the messages of a chat, or a list of these"


def as_batch(prompts: Any) -> tuple[list[Any], bool]:
    """The prompts as a list, and whether there was one alone."""
    if isinstance(prompts, BYTES):
        raise TypeError("prompts is bytes: decode them to a string first, as in prompt.decode().")
    prompts = _plain(prompts)
    if isinstance(prompts, str):
        return [prompts], True
    if isinstance(prompts, Mapping):
        raise TypeError(f"prompts is one message, {prompts!r:.80}. Put it in a list: [message].")
    if not isinstance(prompts, Sequence):
        raise TypeError(f"prompts is {prompts!r:.80}, but must be {EXPECTED}")
    if not prompts:
        raise ValueError(f"there is no prompt: give {EXPECTED}")
    first = _plain(prompts[0])
    alone = isinstance(first, Mapping) or as_int(first) is not None
    return ([prompts], True) if alone else (list(prompts), False)


def reading(model: StepModel) -> tuple[TokenizerLike | None, int]:
    """The text in which prompts are written, and how many tokens it has.

    The model's own, unless it is an encoder–decoder whose sources have a vocabulary of theirs.
    """
    return model.source_tokenizer or model.tokenizer, model.source_vocab_size or model.vocab_size


def ids_of(model: StepModel, prompt: Any, place: int, *, answer: bool = False) -> tuple[int, ...]:
    """The token ids of one prompt, or of an answer to it, each of them in the vocabulary of its kind."""
    if isinstance(prompt, BYTES):
        raise TypeError(f"prompt {place} is bytes: decode it to a string first, as in prompt.decode().")
    prompt, (text, size) = _plain(prompt), (model.tokenizer, model.vocab_size) if answer else reading(model)
    if isinstance(prompt, str):
        ids = tuple(_needed(text, place).encode(prompt))
    elif not isinstance(prompt, Sequence):
        raise TypeError(
            f"prompt {place} is {prompt!r:.80}, but must be a string, token ids or messages of a chat"
        )
    elif prompt and isinstance(prompt[0], Mapping):
        ids = tuple(_needed(text, place).encode(_needed(text, place).chat(prompt)))
    else:
        ids = tuple(_id(token, place) for token in prompt)
    if not ids:
        start = None if text is None else text.bos_id
        hint = "" if start is None else f"; to begin from nothing, pass [{start}], the first token of a text"
        raise ValueError(f"prompt {place} is empty: give at least one token{hint}")
    check_ids(size, ids, f"prompt {place}")
    return ids


def check_ids(vocab_size: int, ids: Sequence[int], name: str) -> None:
    """Refuse token ids that the model does not know."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"{name} holds token {token}, outside the model's vocabulary "
                f"0…{vocab_size - 1}: was it encoded with another model's tokenizer?"
            )


def as_int(value: Any) -> int | None:
    """A whole number of any kind as Python's own; None for everything else, True and False included."""
    if isinstance(value, bool) or _is_array(value):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _id(token: Any, place: int) -> int:
    found = as_int(token)
    if found is None:
        raise TypeError(f"prompt {place} holds {token!r:.80}: token ids are whole numbers")
    return found


def _plain(prompts: Any) -> Any:
    """An array or a tensor as (nested) lists; everything else as it is."""
    return prompts.tolist() if _is_array(prompts) else prompts


def _is_array(value: Any) -> bool:
    return hasattr(value, "tolist") and getattr(value, "ndim", 0) > 0


def _needed(text: TokenizerLike | None, place: int) -> TokenizerLike:
    if text is None:
        raise ValueError(
            f"prompt {place} is text, but this model has no tokenizer: give token ids, "
            "or load the model from a folder with a tokenizer.json"
        )
    return text


# How many tokens a model may write after a prompt.


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
    return max(1, model.context - 1) if model.is_encoder_decoder else model.context - len(prompt)
