"""What each token adds to the text, in bytes: a character may be spread over several tokens.

    text(t₁ … tₙ) = utf8⁻¹( piece(∅, t₁) · piece(t₁, t₂) · … · piece(tₙ₋₁, tₙ) )

A piece depends on the token before it only because some tokenizers write spaces between tokens, or take the
space off the first. Special tokens, and ids the tokenizer does not know, add nothing.

Differs from `tokenizers`: there a run of byte tokens (<0xE2> <0x82> …) that is not UTF-8 throughout loses all
its characters; here only the bytes that belong to no character are lost, so that what was shown stays.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache

from tokenizers import Tokenizer

from unspool.text.tokenizer_file import library_errors

BROKEN = "\N{REPLACEMENT CHARACTER}"

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _one_mark_per_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return BROKEN * (error.end - error.start), error.end


codecs.register_error("unspool.one_mark_per_byte", _one_mark_per_byte)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's spelling: a printable Latin-1 byte is its own character, the others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(others)}


_BYTES = _byte_alphabet()


class Pieces:
    """The bytes that a token adds after another one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        decoder = tokenizer.decoder
        # What a decoder does is asked of it, not of its class: it may sit inside a sequence of decoders.
        self._byte_level = decoder is not None and decoder.decode(["Ġ", "Ã", "©"]) == " é"
        self._byte_fallback = decoder is not None and decoder.decode(["a", "<0xC3>", "<0xA9>"]) == "aé"
        self._errors = "replace" if self._byte_level else "unspool.one_mark_per_byte"

    @cached_property
    def silent(self) -> frozenset[int]:
        """The special tokens: they steer the model and are no text."""
        added = self.tokenizer.get_added_tokens_decoder()
        return frozenset(token for token, entry in added.items() if entry.special)

    def __call__(self, last: int | None, token: int) -> bytes | None:
        """The bytes of `token` after the visible token `last`; None where it is not visible itself."""
        spelling = None if token in self.silent else self.tokenizer.id_to_token(token)
        if spelling is None:
            return None
        if self._byte_level:
            return _spelled_bytes(spelling)
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
            text: str = self.tokenizer.decode(tokens, skip_special_tokens=False)
            return text


DECODING_ERRORS = library_errors("the tokens cannot be decoded")


@lru_cache(maxsize=1 << 16)
def _spelled_bytes(spelling: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in spelling])
    except KeyError:  # a token that was added by hand is written as it reads
        return spelling.encode()
