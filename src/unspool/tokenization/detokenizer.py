"""Incremental detokenizer: text of a token stream as soon as it is final, up to a stop string.

A character is final when all its bytes have arrived and it cannot be part of a stop string. Final text never
changes. Without stop strings the result equals decoding all tokens at once. The cost of a push does not grow
with the text, apart from one copy of it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from tokenizers import Tokenizer

from unspool.interfaces import FinishReason
from unspool.tokenization.tokenizer_file import library_errors

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
DECODING_ERRORS = library_errors("the tokens cannot be decoded")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return REPLACEMENT * (error.end - error.start), error.end


codecs.register_error("unspool.replace_each_byte", _replace_each_byte)


# GPT-2's byte alphabet: printable Latin-1 bytes map to themselves, the others to U+0100 and up.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
_BYTES = {chr(b): b for b in _PRINTABLE} | {chr(0x100 + n): b for n, b in enumerate(_OTHERS)}


class TokenBytes:
    """The bytes that a token adds to a text; a character may span several tokens.

        text(t₁ … tₙ) = utf8⁻¹( bytes(∅, t₁) · bytes(t₁, t₂) · … · bytes(tₙ₋₁, tₙ) )

    The bytes depend on the previous token because some tokenizers write spaces between tokens or strip the
    space of the first. Special tokens and unknown ids add no bytes.

    Differs from `tokenizers`: if a run of byte tokens (<0xE2> <0x82> …) is not valid UTF-8, that library
    replaces the whole run. This class replaces only the invalid bytes, so that text shown earlier is kept.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self.backend = backend
        decoder = backend.decoder
        # Test the decoder's behaviour, not its class: it may be part of a sequence of decoders.
        self._byte_level = decoder is not None and decoder.decode(["Ġ", "Ã", "©"]) == " é"
        self._byte_fallback = decoder is not None and decoder.decode(["a", "<0xC3>", "<0xA9>"]) == "aé"
        self._errors = "replace" if self._byte_level else "unspool.replace_each_byte"

    @cached_property
    def silent(self) -> frozenset[int]:
        """The special tokens, which add no text."""
        added = self.backend.get_added_tokens_decoder()
        return frozenset(token for token, entry in added.items() if entry.special)

    def __call__(self, last: int | None, token: int) -> bytes | None:
        """The bytes of `token` after the visible token `last`; None if `token` adds no text."""
        spelling = None if token in self.silent else self.backend.id_to_token(token)
        if spelling is None:
            return None
        if self._byte_level:
            return _byte_level_bytes(spelling)
        byte = _BYTE_TOKEN.fullmatch(spelling) if self._byte_fallback else None
        if byte is not None and (last is not None or byte[1] >= "80"):
            return bytes.fromhex(byte[1])
        with DECODING_ERRORS:
            if last is None:
                return self._decode([token]).encode()
            return self._decode([last, token])[len(self._decode([last])) :].encode()

    def characters(self, data: bytes, final: bool = False) -> tuple[str, bytes]:
        """The complete characters of `data`, and the bytes of an incomplete one at its end."""
        text, used = codecs.utf_8_decode(data, self._errors, final)
        return text, data[used:]

    def join(self, tokens: Iterable[int]) -> str:
        """The text of all tokens."""
        data, last = bytearray(), None
        for token in tokens:
            added = self(last, token)
            if added is not None:
                data += added
                last = token
        return self.characters(bytes(data), final=True)[0]

    def _decode(self, tokens: list[int]) -> str:
        return self.backend.decode(tokens, skip_special_tokens=False)


@lru_cache(maxsize=1 << 16)
def _byte_level_bytes(spelling: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in spelling])
    except KeyError:  # an added token is not in the byte alphabet
        return spelling.encode()


@dataclass(frozen=True, slots=True)
class IncrementalDetokenizer:
    """The text of one hypothesis so far. Immutable, because beams branch."""

    token_bytes: TokenBytes = field(repr=False)
    stop: tuple[str, ...] = ()
    """Stop strings; the text is cut before the earliest one."""
    text: str = ""
    """The final text so far."""
    finish_reason: FinishReason | None = None
    held: str = ""
    """Characters held back because a stop string may start with them."""
    partial: bytes = b""
    """Bytes of an incomplete character."""
    last: int | None = None
    """The last visible token."""

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise ValueError("a stop string is empty and would stop every text at once; remove it")

    def push(self, token: int) -> IncrementalDetokenizer:
        """The detokenizer after one more token; unchanged after a stop string."""
        if self.finish_reason is not None:
            return self
        added = self.token_bytes(self.last, token)
        if added is None:
            return self
        new, partial = self.token_bytes.characters(self.partial + added)
        tail = self.held + new
        cut = _first_stop(tail, self.stop)
        if cut is not None:
            text = self.text + tail[:cut]
            return IncrementalDetokenizer(self.token_bytes, self.stop, text, "stop", last=token)
        final = len(tail) - _overlap(tail, self.stop)
        return IncrementalDetokenizer(
            self.token_bytes, self.stop, self.text + tail[:final], None, tail[final:], partial, last=token
        )

    def close(self) -> str:
        """The complete text; an incomplete character at the end becomes U+FFFD."""
        tail = self.held + self.token_bytes.characters(self.partial, final=True)[0]
        return self.text + tail[: _first_stop(tail, self.stop)]


def _first_stop(text: str, stop: tuple[str, ...]) -> int | None:
    """The index of the earliest stop string in the text, or None."""
    return min((at for at in map(text.find, stop) if at >= 0), default=None) if stop else None


def _overlap(text: str, stop: tuple[str, ...]) -> int:
    """The length of the longest suffix of `text` that is a prefix of a stop string."""
    if not stop:
        return 0
    for length in range(min(len(text), max(map(len, stop)) - 1), 0, -1):
        suffix = text[-length:]
        if any(each.startswith(suffix) for each in stop):
            return length
    return 0


@dataclass(frozen=True, slots=True)
class BackwardDetokenizer:
    """Detokenizer for models that generate right to left. Immutable, because beams branch.

        p(y) = Π_t p(y_t | y_{>t})

    No text is final before the last step, because each token is placed before the earlier ones.
    """

    decode: Callable[[Sequence[int]], str] = field(repr=False)
    """Tokens in generation order → text in reading order."""
    stop: tuple[str, ...] = ()
    """Stop strings; the text after the last one is kept."""
    tokens: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None
    text = ""

    def push(self, token: int) -> BackwardDetokenizer:
        """The detokenizer after one more token; unchanged after a stop string."""
        if self.finish_reason is not None:
            return self
        tokens = (*self.tokens, token)
        stopped = bool(self.stop) and any(each in self.decode(tokens) for each in self.stop)
        return replace(self, tokens=tokens, finish_reason="stop" if stopped else None)

    def close(self) -> str:
        """The text after the last stop string."""
        text = self.decode(self.tokens)
        ends = [text.rfind(each) + len(each) for each in self.stop if each in text]
        return text[max(ends, default=0) :]
