"""A model's tokens as the bytes that they add to a text, for a parser that reads bytes.

Some tokenizers write the first token of a text otherwise than the later ones: words have a space before them,
but not the first. For these every token is there twice, id V + i being token i at the beginning of a text.

Where a tokenizer writes a space before every token but the first, no token can begin without one after a
prompt: the space belongs to the prompt then, and a grammar does not see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from unspool.decode.path import Path
from unspool.protocols import Text


def parser() -> Any:
    """llguidance, which an extra installs."""
    try:
        import llguidance
    except ImportError as error:
        raise ImportError("Grammar needs the package llguidance: pip install 'unspool[grammar]'") from error
    return llguidance


class TokenBytes:
    """The tokens of one text, for models with `size` tokens whose texts end with `ends`."""

    def __init__(self, text: Text, size: int, ends: frozenset[int]) -> None:
        self.text, self.size, self.ends = text, size, ends
        self._later = [text.piece(token) for token in range(size)]
        first = [text.piece(token, first=True) for token in range(size)]
        self.special = np.array([piece is None for piece in self._later])
        self.twice = first != self._later
        self._first = first if self.twice else []
        visible = [piece for piece in self._later if piece]
        self._spaced = self.twice and all(piece.startswith(b" ") for piece in visible)

    @cached_property
    def known(self) -> Any:
        """The same as llguidance keeps it: a trie."""
        llguidance = parser()
        wrapped = llguidance.TokenizerWrapper(_Tokens(self))
        return llguidance.LLTokenizer(wrapped, n_vocab=len(wrapped.tokens), eos_token=sorted(self.ends))

    def pieces(self) -> list[bytes]:
        """The bytes by id. Special tokens have their names; in there, no text spells them."""
        named = [
            self.text.show(token).encode() if piece is None and token < self.text.vocab_size else piece or b""
            for token, piece in enumerate(self._later)
        ]
        return named + [piece or b"" for piece in self._first]

    def begins(self, path: Path) -> bool:
        """Whether what follows the prompt is read as the beginning of a text."""
        if not self.twice:
            return False
        return self._spaced or not path.prompt or self.text.piece(path.prompt[-1]) is None

    def id_of(self, token: int, first: bool) -> int:
        """A token's id in `known`."""
        return token + self.size if first and not self.special[token] else token

    def allowed(self, bits: bytes, first: bool) -> NDArray[np.bool_]:
        """(V): which tokens a mask of `known` allows."""
        mask = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").astype(bool)
        later = mask[: self.size]
        return mask[self.size : 2 * self.size] | (later & self.special) if first else later


class _Tokens:
    """What llguidance asks of a tokenizer."""

    def __init__(self, of: TokenBytes) -> None:
        self.tokens: Sequence[bytes] = of.pieces()
        self.special_token_ids = [*np.flatnonzero(of.special).tolist()]
        self.eos_token_id, self.bos_token_id = min(of.ends), of.text.bos_id
        self._text = of.text

    def __call__(self, text: str) -> list[int]:
        return self._text.encode(text)


_KNOWN: WeakKeyDictionary[Text, dict[tuple[int, frozenset[int]], TokenBytes]] = WeakKeyDictionary()


def token_bytes(text: Text, size: int, ends: frozenset[int]) -> TokenBytes:
    """The same for the same text: half a second's work for 50,000 tokens, done once."""
    found = _KNOWN.setdefault(text, {})
    if (size, ends) not in found:
        found[size, ends] = TokenBytes(text, size, ends)
    return found[size, ends]
