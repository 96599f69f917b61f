"""Prompts: strings, token ids and chat messages to token ids.

A prompt is a string, a row of token ids (a list, a tuple, a NumPy array or a tensor), or the messages of a
chat. Several prompts are a list of these, or a matrix of ids with a row for each.

A string may contain special tokens of the model's tokenizer; in chat messages they are plain text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unspool.arguments import int_or_none
from unspool.interfaces import StepModel, TokenizerLike

Message = Mapping[str, str]
Prompt = str | Sequence[int] | Sequence[Message]
Prompts = Sequence[str] | Sequence[Sequence[int]] | Sequence[Sequence[Message]]

BYTES = bytes | bytearray | memoryview
"""Sequences of integers in Python, but meant as encoded text."""
EXPECTED = "a string, token ids, the messages of a chat, or a list of these"


def as_batch(prompts: Any) -> tuple[list[Any], bool]:
    """The prompts as a list, and whether there was a single one."""
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
    alone = isinstance(first, Mapping) or int_or_none(first) is not None
    return ([prompts], True) if alone else (list(prompts), False)


def prompt_vocabulary(model: StepModel) -> tuple[TokenizerLike | None, int]:
    """The tokenizer and the vocabulary size of prompts.

    They differ from those of texts if an encoder–decoder has a separate source vocabulary.
    """
    return model.source_tokenizer or model.tokenizer, model.source_vocab_size or model.vocab_size


def ids_of(
    model: StepModel, prompt: Any, place: int, *, name: str = "prompt", is_target: bool = False
) -> tuple[int, ...]:
    """The token ids of one prompt, or of a target text if `is_target`, which may be empty.

    Error messages call it by its name and place.
    """
    name = f"{name} {place}"
    if isinstance(prompt, BYTES):
        raise TypeError(f"{name} is bytes: decode it to a string first, as in text.decode().")
    prompt = _plain(prompt)
    tokenizer, size = (model.tokenizer, model.vocab_size) if is_target else prompt_vocabulary(model)
    if isinstance(prompt, str):
        ids = tuple(_require_tokenizer(tokenizer, name).encode(prompt))
    elif not isinstance(prompt, Sequence):
        raise TypeError(f"{name} is {prompt!r:.80}, but must be a string, token ids or messages of a chat")
    elif prompt and isinstance(prompt[0], Mapping):
        tokenizer = _require_tokenizer(tokenizer, name)
        ids = tuple(tokenizer.encode(tokenizer.chat(prompt)))
    else:
        numbers = [int_or_none(token) for token in prompt]
        if None in numbers:
            wrong = prompt[numbers.index(None)]
            raise TypeError(f"{name} holds {wrong!r:.80}: token ids are whole numbers")
        ids = tuple(token for token in numbers if token is not None)
    if not ids and not is_target:
        bos = None if tokenizer is None else tokenizer.bos_id
        hint = "" if bos is None else f"; to start without a prompt, pass [{bos}], the BOS token"
        raise ValueError(f"{name} is empty: give at least one token{hint}")
    check_ids(size, ids, name)
    return ids


def encode_without_bos(tokenizer: TokenizerLike, text: str) -> tuple[int, ...]:
    ids = tuple(tokenizer.encode(text))
    return ids[1:] if ids[:1] == (tokenizer.bos_id,) else ids


def check_ids(vocab_size: int, ids: Sequence[int], name: str) -> None:
    """Refuse token ids outside the vocabulary."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise ValueError(
                f"{name} holds token {token}, outside the model's vocabulary "
                f"0…{vocab_size - 1}: was it encoded with another model's tokenizer?"
            )


def _plain(prompts: Any) -> Any:
    return prompts.tolist() if getattr(prompts, "ndim", 0) > 0 else prompts


def _require_tokenizer(tokenizer: TokenizerLike | None, name: str) -> TokenizerLike:
    if tokenizer is None:
        raise ValueError(
            f"{name} is text, but this model has no tokenizer: give token ids, "
            "or load the model from a folder with a tokenizer.json"
        )
    return tokenizer


def tokens_left(model: StepModel, prompt: Sequence[int]) -> int | None:
    """Number of new tokens that the context allows after a prompt; None if it is unlimited.

    The target of an encoder–decoder shares its context only with BOS. For combined models the smallest number
    counts.
    """
    read = model.prompts_read(prompt)
    if read:
        left = [tokens_left(part, other) for part, other in read]
        return min((free for free in left if free is not None), default=None)
    if model.context is None:
        return None
    return max(1, model.context - 1) if model.is_encoder_decoder else model.context - len(prompt)
