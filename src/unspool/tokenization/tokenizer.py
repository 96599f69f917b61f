"""Tokenizer of a model: str ↔ token ids, BOS and EOS, and the chat template.

Special tokens in text: `encode` reads "<|im_start|>" in a raw prompt as the token of that name, as Hugging
Face does. `encode(text, special_tokens=False)` reads it as plain characters; use it for untrusted text. In
`chat` messages, text never becomes a special token; only the template writes them (`control_tokens`).
Vocabularies trained by this package are `literal`: no prompt can spell their special tokens.
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
from unspool.io import read_json_object
from unspool.tokenization.chat_template import render_chat
from unspool.tokenization.control_tokens import ChatPrompt, ControlTokens
from unspool.tokenization.detokenizer import (
    DECODING_ERRORS,
    REPLACEMENT,
    BackwardDetokenizer,
    IncrementalDetokenizer,
    TokenBytes,
)
from unspool.tokenization.tokenizer_file import library_errors, read_tokenizer

TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_settings.json"
SOURCE_PREFIX = "source_"
"""File name prefix of a separate source vocabulary."""


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """str ↔ token ids. Turns off the backend's truncation and padding."""

    backend: tokenizers.Tokenizer = field(repr=False)
    """The Hugging Face `tokenizers` object that encodes and decodes."""
    bos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    """Tokens that end a text or a turn."""
    add_bos: bool = False
    """Whether `encode` prepends bos_id."""
    chat_template: str | None = field(default=None, repr=False)
    """Jinja: messages → prompt."""
    bos_token: str = ""
    """The value of `bos_token` in the chat template."""
    eos_token: str = ""
    """The value of `eos_token` in the chat template."""
    literal: bool = False
    """Whether text that spells a special token stays plain text."""
    right_to_left: bool = False
    """Whether the model generates the last token of a text first. Strings keep their normal order."""
    source: Tokenizer | None = field(default=None, repr=False)
    """Tokenizer of an encoder–decoder's sources, if they have a separate vocabulary."""

    def __post_init__(self) -> None:
        if self.bos_id is None and self.add_bos:
            raise ValueError("add_bos=True needs a bos_id, but bos_id is None")
        if self.bos_id is not None and id_to_token(self.backend, self.bos_id) is None:
            raise ValueError(f"bos_id {self.bos_id} is not among the tokenizer's {self.vocab_size} tokens")
        self.backend.no_truncation()
        self.backend.no_padding()
        if self.backend.encode_special_tokens != self.literal:  # tokenizer.json does not store it
            # Copy the backend: another Tokenizer may share it with the opposite setting.
            object.__setattr__(self, "backend", tokenizers.Tokenizer.from_str(self.backend.to_str()))
            self.backend.encode_special_tokens = self.literal

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return 1 + max(self.backend.get_vocab().values(), default=-1)

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """The bytes of each token."""
        return TokenBytes(self.backend)

    @cached_property
    def source_tokenizer(self) -> Tokenizer:
        """Tokenizer of sources: left to right, in the source vocabulary if there is one."""
        return self.source or (replace(self, right_to_left=False) if self.right_to_left else self)

    @cached_property
    def control(self) -> ControlTokens:
        """The tokens that structure a prompt; chat messages cannot spell them."""
        ends = self.eos_ids if self.bos_id is None else self.eos_ids | {self.bos_id}
        return ControlTokens(self.backend, ends, self.chat_template)

    def to_model_order(self, ids: list[int]) -> list[int]:
        """Convert ids between text order and model order; the two differ if `right_to_left`."""
        return ids[::-1] if self.right_to_left else ids

    def token_to_id(self, token: str) -> int | None:
        """The id of a token of the vocabulary ("<pad>"), or None if it is unknown."""
        return self.backend.token_to_id(token)

    def encode(self, text: str, *, special_tokens: bool = True) -> list[int]:
        """Token ids. With add_bos, the ids start with exactly one bos_id, even if the text spells it.

        Text may spell special tokens ("<|im_end|>") unless `special_tokens` is False or the tokenizer is
        `literal`. In a prompt that `chat` returned, only the template's special tokens count.
        """
        if not isinstance(text, str):
            raise TypeError(f"encode takes a string, not a {type(text).__name__}; decode bytes first")
        check_surrogates(text, "the text")
        ids, _ = self.encode_with_offsets(text, special_tokens=special_tokens)
        return self.with_bos(self.to_model_order(ids))

    def with_bos(self, ids: list[int]) -> list[int]:
        """Prepend BOS if add_bos is set and the ids do not start with it."""
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def encode_with_offsets(
        self, text: str, *, special_tokens: bool = True
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids in text order without BOS, and the character span (start, end) of each."""
        with library_errors("the text cannot be encoded"):
            if isinstance(text, ChatPrompt) and special_tokens and (self.literal or not text.ordinary):
                return self.control.encode(text, text.spans)
            if not special_tokens:
                return self.control.encode(text, ())
            # The backend's post-processor would add special tokens, often a second BOS.
            encoding = self.backend.encode(text, add_special_tokens=False)
            return encoding.ids, encoding.offsets

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Encodings of the `tokenizers` library in text order, without BOS; runs on all cores."""
        with library_errors("a text cannot be encoded"):
            return self.backend.encode_batch(list(texts), add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the tokens, without special tokens."""
        tokens = [operator.index(token) for token in ids]
        if tokens and not 0 <= min(tokens) <= max(tokens) < 2**32:
            wrong = min(tokens) if min(tokens) < 0 else max(tokens)
            raise ValueError(f"{wrong} is not a token id; ids run from 0 to {self.vocab_size - 1}")
        tokens = self.to_model_order(tokens)
        with DECODING_ERRORS:
            text: str = self.backend.decode(tokens, skip_special_tokens=True)
        return self.token_bytes.join(tokens) if REPLACEMENT in text else text

    def show(self, token: int) -> str:
        """One token as readable text: its piece inside a text, or the name of a special token.

        Bytes of an incomplete character are written as \\xe2, an id without a token as <7>.
        """
        piece = self.token_bytes(token, token)
        if piece is None:
            return id_to_token(self.backend, token) or f"<{token}>"
        return piece.decode("utf-8", "backslashreplace")

    def piece(self, token: int, *, first: bool = False) -> bytes | None:
        """The bytes that a token adds inside a text, or at its start if `first`.

        None for special tokens and unknown ids, which add no text.
        """
        return self.token_bytes(None if first else token, token)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        answered: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """Render messages with the chat template; `answered` omits the generation prompt.

        `tools` and `variables` are passed to the template, if it has them (`chat_template.render_chat`).
        `encode` reads only the template's special tokens: text in a message or a tool never becomes one.
        """
        if self.chat_template is None:
            raise ValueError(
                "this model has no chat template: give a plain prompt, or load an instruction-tuned model"
            )
        render = partial(
            render_chat,
            self.chat_template,
            bos_token=self.bos_token,
            eos_token=self.eos_token,
            add_generation_prompt=not answered,
        )
        chat = {"messages": messages, "tools": tools, "variables": variables}
        return self.control.prompt(chat, lambda chat: render(**chat))

    def detokenizer(self, stop: Sequence[str] = (), after: int | None = None) -> Detokenizer:
        """Incremental detokenizer that stops at the earliest stop string.

        Some tokenizers strip the space of a text's first token. The space stays if the text continues
        `after` a visible token of the prompt.
        """
        if isinstance(stop, str) or not all(isinstance(text, str) for text in stop):
            raise TypeError(f"stop takes a list of strings, not {stop!r}; write stop=[...]")
        for text in stop:
            check_surrogates(text, "a stop string")
        if self.right_to_left:
            return BackwardDetokenizer(self.decode, tuple(stop))
        visible = after is not None and self.token_bytes(None, after) is not None
        return IncrementalDetokenizer(self.token_bytes, tuple(stop), last=after if visible else None)

    def save(self, folder: str | Path) -> None:
        """Write tokenizer.json and tokenizer_settings.json into a folder, which is created if missing.

        A separate source vocabulary is written as source_tokenizer.json and source_tokenizer_settings.json.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder, "")
        if self.source is not None:
            self.source._write(folder, SOURCE_PREFIX)

    @classmethod
    def load(cls, folder: str | Path) -> Tokenizer:
        """Read the files that `save` wrote."""
        folder = Path(folder)
        has_source = (folder / f"{SOURCE_PREFIX}{SETTINGS_FILE}").exists()
        return cls._read(folder, "", cls._read(folder, SOURCE_PREFIX) if has_source else None)

    def _write(self, folder: Path, prefix: str) -> None:
        # Errors of `backend.save` do not name the file.
        content = self.backend.to_str(pretty=False)
        (folder / f"{prefix}{TOKENIZER_FILE}").write_text(content, encoding="utf-8")
        settings = {name: getattr(self, name) for name in _SAVED_FIELDS} | {"eos_ids": sorted(self.eos_ids)}
        text = json.dumps(settings, ensure_ascii=False, indent=2)
        (folder / f"{prefix}{SETTINGS_FILE}").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def _read(cls, folder: Path, prefix: str, source: Tokenizer | None = None) -> Tokenizer:
        path = folder / f"{prefix}{SETTINGS_FILE}"
        settings = {"literal": False, "right_to_left": False} | read_json_object(path)  # absent in old files
        if set(settings) != set(_SAVED_FIELDS):
            keys = ", ".join(_SAVED_FIELDS)
            raise ValueError(f"{path} must have the keys {keys}; write it with Tokenizer.save")
        backend = read_tokenizer(folder / f"{prefix}{TOKENIZER_FILE}")
        try:
            settings["eos_ids"] = frozenset(map(operator.index, settings["eos_ids"]))
            return cls(backend, **settings, source=source)
        except TypeError as error:
            raise ValueError(f"{path} has a wrong value ({error}); write it with Tokenizer.save") from error


_SAVED_FIELDS = tuple(each.name for each in fields(Tokenizer) if each.name not in ("backend", "source"))


def id_to_token(backend: tokenizers.Tokenizer, token: int) -> str | None:
    """The vocabulary entry of a token id, or None if the id is unknown; accepts any integer."""
    return backend.id_to_token(token) if 0 <= token < 2**32 else None
