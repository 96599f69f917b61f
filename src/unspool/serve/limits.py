"""What one request may ask for, checked before anything is allocated for it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from unspool.decode.search import SEARCHES


@dataclass(frozen=True)
class Limits:
    """Bounds of a request."""

    body_bytes: int = 4_000_000
    rows: int = 256
    """Texts of one request: prompts times n, or best_of."""
    width: int = 64
    """Any whole number of a search: the width of a beam, the samples of MBR."""
    new_tokens: int = 16_384
    prompt_tokens: int = 32_768
    """Of a prompt, where the model's context is no limit."""
    seconds: float = 600.0
    """From the request to its last token."""


def check_search(search: Any, limits: Limits) -> None:
    """Refuse a search that asks for more than is allowed, and those inside it."""
    for value in _numbers(search):
        if value > limits.width:
            raise ValueError(
                f"{search!r:.80} asks for {value}, and this server allows {limits.width} rows to a text"
            )


def _numbers(search: Any) -> list[int]:
    """The whole numbers of a search's own settings: what multiplies its rows."""
    found: list[int] = []
    for field in fields(search):
        value = getattr(search, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
        elif type(value) in SEARCHES.values() or field.name == "options":
            found += _numbers(value)
    return found
