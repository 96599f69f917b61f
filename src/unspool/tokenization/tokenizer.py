"""A model's tokenizer: str ↔ token ids, the chat it was taught, and the tokens that begin and end a text.

A raw prompt may spell special tokens: `encode` reads "<|im_start|>" as the token of that name, as Hugging
Face does, so that prompts can be written by hand. `encode(text, special_tokens=False)` reads it as plain
characters: use it for text from strangers. In the messages of a `chat` no text becomes a special token; only
the template writes them (`control_tokens`). A vocabulary learnt here is `literal`: no raw prompt can spell
its special tokens.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Encoding

from unspool.errors import check_surrogates
from unspool.interfaces import Detokenizer
from unspool.io import read_bounded
from unspool.tokenization.chat_template import render_chat
from unspool.tokenization.control_tokens import ChatPrompt, ControlTokens
from unspool.tokenization.detokenizer import (
    REPLACEMENT,
    BackwardDetokenizer,
    IncrementalDetokenizer,
    TokenBytes,
)
from unspool.tokenization.tokenizer_file import library_errors, read_tokenizer

# Reads a JSON object from a file, and names the file when it cannot.


def read_json_object(path: Path) -> dict[str, Any]:
    """The object that `path` holds; ValueError where it is not JSON, or JSON of another kind."""
    content = read_bounded(path)
    try:
        value = json.loads(content.decode())
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise ValueError(f"{path} is not valid JSON ({error}); fetch or write the file again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value


TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "text.json"
SOURCE_PREFIX = "source_"
"""How the files of a source's vocabulary begin."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """str ↔ token ids. Truncation and padding that the tokenizer carries are switched off."""

    backend: tokenizers.Tokenizer = field(repr=False)
    bos_id: int | None = None
    """The token that begins a text."""
    eos_ids: frozenset[int] = frozenset()
    """The tokens that end a text or a turn."""
    add_bos: bool = False
    """Whether `encode` writes bos_id first. A vocabulary learnt here says what its model was trained with."""
    chat_template: str | None = field(default=None, repr=False)
    """Jinja: messages → prompt."""
    bos_token: str = ""
    """bos_id as the chat template writes it."""
    eos_token: str = ""
    """The end of a text as the chat template writes it."""
    literal: bool = False
    """Whether text that spells a special token is text like any other, and never becomes that token."""
    right_to_left: bool = False
    """Whether a text's last token comes first; text goes in and comes out as people read it."""
    source: Tokenizer | None = field(default=None, repr=False)
    """How an encoder–decoder's sources are read, where they have a vocabulary of their own."""

    def __post_init__(self) -> None:
        if self.bos_id is None and self.add_bos:
            raise ValueError("add_bos asks for a first token, but bos_id is None; give one, or no add_bos")
        if self.bos_id is not None and id_to_token(self.backend, self.bos_id) is None:
            raise ValueError(f"bos_id {self.bos_id} is not among the tokenizer's {self.vocab_size} tokens")
        self.backend.no_truncation()
        self.backend.no_padding()
        if self.backend.encode_special_tokens != self.literal:  # tokenizer.json does not keep it
            # On a copy: another Tokenizer may read the same tokenizer the other way.
            object.__setattr__(self, "backend", tokenizers.Tokenizer.from_str(self.backend.to_str()))
            self.backend.encode_special_tokens = self.literal

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return 1 + max(self.backend.get_vocab().values(), default=-1)

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """The bytes of each token."""
        return TokenBytes(self.backend)

    @cached_property
    def source_tokenizer(self) -> Tokenizer:
        """How sources are read: from left to right, in their own vocabulary where they have one."""
        return self.source or (replace(self, right_to_left=False) if self.right_to_left else self)

    def to_model_order(self, ids: list[int]) -> list[int]:
        """Tokens from left to right in the order in which the model has them, and the other way round."""
        return ids[::-1] if self.right_to_left else ids

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it ("<pad>"); None where there is no such token."""
        found: int | None = self.backend.token_to_id(token)
        return found

    @cached_property
    def control(self) -> ControlTokens:
        """The tokens that structure a prompt, and that no message of a chat may spell."""
        ends = self.eos_ids if self.bos_id is None else self.eos_ids | {self.bos_id}
        return ControlTokens(self.backend, ends, self.chat_template)

    def encode(self, text: str, *, special_tokens: bool = True) -> list[int]:
        """Token ids; with add_bos, bos_id comes first exactly once, even if the text spells it.

        A text may spell special tokens ("<|im_end|>"), unless `special_tokens` is False or the tokenizer is
        `literal`. Of a text that `chat` returned, only the template's own are read as such.
        """
        if not isinstance(text, str):
            raise TypeError(f"encode takes a string, not a {type(text).__name__}; decode bytes before")
        check_surrogates(text, "the text")
        return self.with_bos(
            self.to_model_order(self.encode_with_offsets(text, special_tokens=special_tokens)[0])
        )

    def with_bos(self, ids: list[int]) -> list[int]:
        """The tokens of a whole text as a model reads them: with add_bos, BOS comes first."""
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def encode_with_offsets(
        self, text: str, *, special_tokens: bool = True
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids from left to right without the first token of `add_bos`, and the characters of each."""
        with library_errors("the text cannot be encoded"):
            if isinstance(text, ChatPrompt) and special_tokens and (self.literal or not text.ordinary):
                return self.control.encode(text, text.spans)
            if not special_tokens:
                return self.control.encode(text, ())
            # The tokenizer's own post-processor would add special tokens, and often the first one twice.
            found = self.backend.encode(text, add_special_tokens=False)
            return found.ids, found.offsets

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Each text as the tokenizers library has it, without BOS and from left to right; on all cores."""
        with library_errors("a text cannot be encoded"):
            found: list[Encoding] = self.backend.encode_batch(list(texts), add_special_tokens=False)
            return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all tokens but the special ones."""
        tokens = [operator.index(token) for token in ids]
        if tokens and not 0 <= min(tokens) <= max(tokens) < 2**32:
            wrong = min(tokens) if min(tokens) < 0 else max(tokens)
            raise ValueError(f"{wrong} is no token id; they run from 0 to {self.vocab_size - 1}")
        tokens = self.to_model_order(tokens)
        with library_errors("the tokens cannot be decoded"):
            text: str = self.backend.decode(tokens, skip_special_tokens=True)
        return self.token_bytes.join(tokens) if REPLACEMENT in text else text

    def show(self, token: int) -> str:
        """One token for people to read: what it adds to a text that has begun, a special one by its name.

        Bytes that are a part of a character are written as \\xe2; an id without a token as <7>.
        """
        piece = self.token_bytes(token, token)
        if piece is None:
            return id_to_token(self.backend, token) or f"<{token}>"
        return piece.decode("utf-8", "backslashreplace")

    def piece(self, token: int, *, first: bool = False) -> bytes | None:
        """The bytes that a token adds to a text that has begun, or (`first`) to an empty one.

        None for a special token, and for an id without a token: they add nothing.
        """
        return self.token_bytes(None if first else token, token)

    def chat(self, messages: Sequence[Mapping[str, str]], *, answered: bool = False) -> ChatPrompt:
        """Messages as the one string that the model was taught to answer; `answered`: the last is an answer,
        and none is asked for.

        `encode` reads only the template's own special tokens in it: text in a message never becomes one.
        """
        if self.chat_template is None:
            raise ValueError(
                "this model has no chat template: it was not taught to chat; give it a plain prompt, "
                "or load an instruction-tuned version of it"
            )
        render = partial(
            render_chat,
            self.chat_template,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            add_generation_prompt=not answered,
        )
        return self.control.prompt(messages, render)

    def detokenizer(self, stop: Sequence[str] = (), after: int | None = None) -> Detokenizer:
        """Reads tokens one by one, up to the earliest of the stop strings.

        Some tokenizers take the space off the first token of a text: it stays where the text goes on `after`
        a visible token of the prompt.
        """
        if isinstance(stop, str) or not all(isinstance(text, str) for text in stop):
            raise TypeError(f"stop takes a list of strings, not {stop!r}; write stop=[...]")
        for each in stop:
            check_surrogates(each, "a stop string")
        if self.right_to_left:
            return BackwardDetokenizer(self.decode, tuple(stop))
        visible = after is not None and self.token_bytes(None, after) is not None
        return IncrementalDetokenizer(self.token_bytes, tuple(stop), last=after if visible else None)

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json and text.json into a folder, which is made where there is none.

        A source's vocabulary of its own stands beside them, in source_tokenizer.json and source_text.json.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder, "")
        if self.source is not None:
            self.source._write(folder, SOURCE_PREFIX)

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """What `save` wrote; FileNotFoundError or ValueError names the file that is missing or broken."""
        folder = Path(folder)
        source = (
            cls._read(folder, SOURCE_PREFIX)
            if (folder / f"{SOURCE_PREFIX}{SETTINGS_FILE}").exists()
            else None
        )
        return cls._read(folder, "", source)

    def _write(self, folder: Path, begin: str) -> None:
        # Not `tokenizer.save`, whose errors name neither the file nor what is wrong with it.
        written = self.backend.to_str(pretty=False)
        (folder / f"{begin}{TOKENIZER_FILE}").write_text(written, encoding="utf-8")
        facts = {name: getattr(self, name) for name in _SAVED} | {"eos_ids": sorted(self.eos_ids)}
        text = json.dumps(facts, ensure_ascii=False, indent=2)
        (folder / f"{begin}{SETTINGS_FILE}").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def _read(cls, folder: Path, begin: str, source: Tokenizer | None = None) -> Tokenizer:
        path = folder / f"{begin}{SETTINGS_FILE}"
        facts = read_json_object(path)
        for name in ("literal", "right_to_left"):  # a vocabulary of before there was the choice
            facts.setdefault(name, False)
        if set(facts) != set(_SAVED):
            raise ValueError(f"{path} must have the keys {', '.join(_SAVED)}; write it with Tokenizer.save")
        tokenizer = read_tokenizer(folder / f"{begin}{TOKENIZER_FILE}")
        facts["eos_ids"] = _ids(facts["eos_ids"], path)
        try:
            return cls(tokenizer, **facts, source=source)
        except TypeError as error:
            raise ValueError(f"{path} has a wrong value ({error}); write it with Tokenizer.save") from error


_SAVED = tuple(each.name for each in fields(Tokenizer) if each.name not in ("backend", "source"))


def _ids(found: Any, path: Path) -> frozenset[int]:
    try:
        return frozenset(map(operator.index, found))
    except TypeError as error:
        raise ValueError(f"{path} has a wrong value ({error}); write it with Tokenizer.save") from error


def id_to_token(tokenizer: tokenizers.Tokenizer, token: int) -> str | None:
    """A token as the vocabulary spells it; None where there is none of that id, whatever the number."""
    found: str | None = tokenizer.id_to_token(token) if 0 <= token < 2**32 else None
    return found
