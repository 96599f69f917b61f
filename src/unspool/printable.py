"""Text from a model as a screen may show it: nothing in it steers the screen.

A model may say escape sequences, which a terminal obeys, and marks that turn the direction of writing
(U+202E), which make what follows read backwards. The letters of right-to-left scripts need no such marks.
"""

from __future__ import annotations

_CONTROLS = (*range(32), *range(127, 160))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: "\N{REPLACEMENT CHARACTER}" for code in (*_CONTROLS, *_DIRECTIONS) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """The text with every control character but newline and tab, and every mark of direction, replaced."""
    return text.translate(_SHOWN)


def one_line(text: str, most: int = 200) -> str:
    """A name that a file gives, for a message: what is no plain character is escaped, the rest of it cut."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(it if it.isprintable() else repr(it)[1:-1] for it in cut)
