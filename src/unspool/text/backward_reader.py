"""Reads the tokens of a text that is written from its end to its beginning.

    p(y) = Π_t p(y_t | y_{>t})

Nothing of such a text can be shown before its beginning has come, for what comes next stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from unspool.protocols import Finish


@dataclass(frozen=True, slots=True)
class BackwardReader:
    """One hypothesis's tokens so far, its last word first. Immutable: a beam may go on in several ways."""

    decode: Callable[[Sequence[int]], str] = field(repr=False)
    """Tokens in the order in which they come → text as people read it."""
    stop: tuple[str, ...] = ()
    """Text that ends the hypothesis: what stands behind it is kept."""
    tokens: tuple[int, ...] = ()
    finish: Finish | None = None

    @property
    def text(self) -> str:
        """What is certain: nothing yet."""
        return ""

    def push(self, token: int) -> BackwardReader:
        """The reader after one more token; after a stop string nothing changes any more."""
        if self.finish is not None:
            return self
        tokens = (*self.tokens, token)
        ended = bool(self.stop) and any(each in self.decode(tokens) for each in self.stop)
        return replace(self, tokens=tokens, finish="stop" if ended else None)

    def close(self) -> str:
        """The whole text, from behind the last stop string on."""
        text = self.decode(self.tokens)
        ends = [text.rfind(each) + len(each) for each in self.stop if each in text]
        return text[max(ends, default=0) :]
