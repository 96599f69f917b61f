"""Reads tokens as they come: shows text as soon as it is certain, and stops at a stop string.

Certain is a character whose bytes have all come and that cannot be part of a stop string any more. What was
shown never changes, and with no stop string the whole is the text of all tokens decoded at once. Each push
costs the same however long the text is, up to one copy of the text.
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

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _one_mark_per_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return REPLACEMENT * (error.end - error.start), error.end


codecs.register_error("unspool.one_mark_per_byte", _one_mark_per_byte)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling: a printable Latin-1 byte is its own character, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}


_BYTES = _byte_alphabet()


class TokenBytes:
    """The bytes that a token adds after another one.

    What each token adds to the text, in bytes: a character may be spread over several tokens.

        text(t₁ … tₙ) = utf8⁻¹( piece(∅, t₁) · piece(t₁, t₂) · … · piece(tₙ₋₁, tₙ) )

    A piece depends on the token before it only because some tokenizers write spaces between tokens, or take
    the space off the first. Special tokens, and ids the tokenizer does not know, add nothing.

    Differs from `tokenizers`: there a run of byte tokens (<0xE2> <0x82> …) that is not UTF-8 throughout loses
    all its characters; here only the bytes that belong to no character are lost, so that what was shown
    stays.
    """

    def __init__(self, backend: Tokenizer) -> None:
        self.backend = backend
        decoder = backend.decoder
        # What a decoder does is asked of it, not of its class: it may sit inside a sequence of decoders.
        self._byte_level = decoder is not None and decoder.decode(["Ġ", "Ã", "©"]) == " é"
        self._byte_fallback = decoder is not None and decoder.decode(["a", "<0xC3>", "<0xA9>"]) == "aé"
        self._errors = "replace" if self._byte_level else "unspool.one_mark_per_byte"

    @cached_property
    def silent(self) -> frozenset[int]:
        """The special tokens: they steer the model and are no text."""
        added = self.backend.get_added_tokens_decoder()
        return frozenset(token for token, entry in added.items() if entry.special)

    def __call__(self, last: int | None, token: int) -> bytes | None:
        """The bytes of `token` after the visible token `last`; None where it is not visible itself."""
        spelling = None if token in self.silent else self.backend.id_to_token(token)
        if spelling is None:
            return None
        if self._byte_level:
            return _byte_level_bytes(spelling)
        byte = _BYTE_TOKEN.fullmatch(spelling) if self._byte_fallback else None
        if byte is not None and (last is not None or byte[1] >= "80"):
            return bytes.fromhex(byte[1])
        if last is None:
            return self._plain([token]).encode()
        return self._plain([last, token])[len(self._plain([last])) :].encode()

    def characters(self, data: bytes, final: bool = False) -> tuple[str, bytes]:
        """The whole characters at the head of `data`, and the beginning of a character at its end."""
        text, used = codecs.utf_8_decode(data, self._errors, final)
        return text, data[used:]

    def join(self, tokens: Iterable[int]) -> str:
        """The text of all tokens."""
        data, last = bytearray(), None
        for token in tokens:
            piece = self(last, token)
            if piece is not None:
                data += piece
                last = token
        return self.characters(bytes(data), final=True)[0]

    def _plain(self, tokens: list[int]) -> str:
        with DECODING_ERRORS:
            text: str = self.backend.decode(tokens, skip_special_tokens=False)
            return text


DECODING_ERRORS = library_errors("the tokens cannot be decoded")


@lru_cache(maxsize=1 << 16)
def _byte_level_bytes(spelling: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in spelling])
    except KeyError:  # a token that was added by hand is written as it reads
        return spelling.encode()


@dataclass(frozen=True, slots=True)
class IncrementalDetokenizer:
    """One hypothesis's text so far. Immutable: a beam may go on from it in several ways."""

    token_bytes: TokenBytes = field(repr=False)
    stop: tuple[str, ...] = ()
    """Text that ends the hypothesis; it is cut before the earliest of them."""
    text: str = ""
    """What is certain."""
    finish_reason: FinishReason | None = None
    held: str = ""
    """Whole characters that may be the beginning of a stop string."""
    partial: bytes = b""
    """The beginning of a character."""
    last: int | None = None
    """The last token that was visible."""

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise ValueError("a stop string is empty: it stops every text at once; leave it out")

    def push(self, token: int) -> IncrementalDetokenizer:
        """The reader after one more token; after a stop string nothing changes any more."""
        if self.finish_reason is not None:
            return self
        piece = self.token_bytes(self.last, token)
        if piece is None:
            return self
        new, partial = self.token_bytes.characters(self.partial + piece)
        tail = self.held + new
        cut = _first_stop(tail, self.stop)
        if cut is not None:
            return IncrementalDetokenizer(
                self.token_bytes, self.stop, self.text + tail[:cut], "stop", last=token
            )
        certain = len(tail) - _overlap(tail, self.stop)
        return IncrementalDetokenizer(
            self.token_bytes, self.stop, self.text + tail[:certain], None, tail[certain:], partial, last=token
        )

    def close(self) -> str:
        """The whole text; the beginning of a character that never ended is marked with U+FFFD."""
        tail = self.held + self.token_bytes.characters(self.partial, final=True)[0]
        return self.text + tail[: _first_stop(tail, self.stop)]


def _first_stop(text: str, stop: tuple[str, ...]) -> int | None:
    """Where the first stop string begins."""
    found = [at for at in map(text.find, stop) if at >= 0]
    return min(found) if found else None


def _overlap(text: str, stop: tuple[str, ...]) -> int:
    """The length of the longest end of `text` that a stop string begins with."""
    if not stop:
        return 0
    for length in range(min(len(text), max(map(len, stop)) - 1), 0, -1):
        end = text[-length:]
        if any(each.startswith(end) for each in stop):
            return length
    return 0


@dataclass(frozen=True, slots=True)
class BackwardDetokenizer:
    """One hypothesis's tokens so far, its last word first. Immutable: a beam may go on in several ways.

    Reads the tokens of a text that is written from its end to its beginning.

        p(y) = Π_t p(y_t | y_{>t})

    Nothing of such a text can be shown before its beginning has come, for what comes next stands before it.
    """

    decode: Callable[[Sequence[int]], str] = field(repr=False)
    """Tokens in the order in which they come → text as people read it."""
    stop: tuple[str, ...] = ()
    """Text that ends the hypothesis: what stands behind it is kept."""
    tokens: tuple[int, ...] = ()
    finish_reason: FinishReason | None = None

    @property
    def text(self) -> str:
        """What is certain: nothing yet."""
        return ""

    def push(self, token: int) -> BackwardDetokenizer:
        """The reader after one more token; after a stop string nothing changes any more."""
        if self.finish_reason is not None:
            return self
        tokens = (*self.tokens, token)
        ended = bool(self.stop) and any(each in self.decode(tokens) for each in self.stop)
        return replace(self, tokens=tokens, finish_reason="stop" if ended else None)

    def close(self) -> str:
        """The whole text, from behind the last stop string on."""
        text = self.decode(self.tokens)
        ends = [text.rfind(each) + len(each) for each in self.stop if each in text]
        return text[max(ends, default=0) :]
