"""Text and token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

Finish = Literal["eos", "length", "stop", "loop"]


class TextWatch(Protocol):
    """Reads one hypothesis as it grows, and says when its text asks to stop. Immutable: beams fork."""

    @property
    def text(self) -> str:
        """Text that is certain: whole characters, no possible beginning of a stop string."""
        ...

    @property
    def finish(self) -> Finish | None: ...

    def push(self, token: int) -> TextWatch: ...

    def close(self) -> str:
        """The whole text, with what was held back."""
        ...


class Text(Protocol):
    """str ↔ token ids."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    @property
    def source(self) -> Text | None:
        """The text of sources, where these have a vocabulary of their own."""
        ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def show(self, token: int) -> str:
        """One token for people to read: what it adds to a text that has begun, a special one by its name."""
        ...

    def piece(self, token: int, *, first: bool = False) -> bytes | None:
        """What a token adds to a text that has begun (to an empty one: `first`); None for a special one."""
        ...

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Messages as the one string that the model was taught to answer."""
        ...

    def watch(self, stop: Sequence[str] = (), after: int | None = None) -> TextWatch:
        """A reader of what follows the token `after`: whether a first space is shown may depend on it."""
        ...
