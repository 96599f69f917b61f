"""Where in a text each of its tokens begins: behind all characters that were whole before it."""

from __future__ import annotations

from collections.abc import Sequence

from unspool.protocols import Text


class TokenOffsets:
    """Counts the characters of one text as its tokens come."""

    def __init__(self, text: Text, after: int | None = None) -> None:
        self._watch = text.watch(after=after)

    def __call__(self, tokens: Sequence[int]) -> list[int]:
        """Where the next tokens begin."""
        found = []
        for token in tokens:
            found.append(len(self._watch.text))
            self._watch = self._watch.push(token)
        return found
