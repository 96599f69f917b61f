"""Reads tokens as they come: shows text as soon as it is certain, and stops at a stop string.

Certain is a character whose bytes have all come and that cannot be part of a stop string any more. What was
shown never changes, and with no stop string the whole is the text of all tokens decoded at once. Each push
costs the same however long the text is, up to one copy of the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from unspool.protocols import Finish
from unspool.text.pieces import Pieces


@dataclass(frozen=True, slots=True)
class Reader:
    """One hypothesis's text so far. Immutable: a beam may go on from it in several ways."""

    pieces: Pieces = field(repr=False)
    stop: tuple[str, ...] = ()
    """Text that ends the hypothesis; it is cut before the earliest of them."""
    text: str = ""
    """What is certain."""
    finish: Finish | None = None
    held: str = ""
    """Whole characters that may be the beginning of a stop string."""
    partial: bytes = b""
    """The beginning of a character."""
    last: int | None = None
    """The last token that was visible."""

    def __post_init__(self) -> None:
        if "" in self.stop:
            raise ValueError("a stop string is empty: it stops every text at once; leave it out")

    def push(self, token: int) -> Reader:
        """The reader after one more token; after a stop string nothing changes any more."""
        if self.finish is not None:
            return self
        piece = self.pieces(self.last, token)
        if piece is None:
            return self
        new, partial = self.pieces.characters(self.partial + piece)
        tail = self.held + new
        cut = _earliest(tail, self.stop)
        if cut is not None:
            return Reader(self.pieces, self.stop, self.text + tail[:cut], "stop", last=token)
        certain = len(tail) - _overlap(tail, self.stop)
        return Reader(
            self.pieces, self.stop, self.text + tail[:certain], None, tail[certain:], partial, last=token
        )

    def close(self) -> str:
        """The whole text; the beginning of a character that never ended is marked with U+FFFD."""
        tail = self.held + self.pieces.characters(self.partial, final=True)[0]
        return self.text + tail[: _earliest(tail, self.stop)]


def _earliest(text: str, stop: tuple[str, ...]) -> int | None:
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
