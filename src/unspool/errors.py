"""Whether an error says that there is no more memory, whoever says it: Python, numpy, torch or the system."""

from __future__ import annotations

import errno
import re


def is_out_of_memory(error: Exception) -> bool:
    """True for a lack of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "allocate memory" in str(error)  # torch has no class for it


def check_surrogates(text: str, what: str) -> str:
    r"""The text, unless it holds half a character; `what` names it.

    Whether a string holds half a character: a str may, and no tokenizer reads one.

    A shell's argument that is not UTF-8 and JSON's "\ud800" both make one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} has a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}, which "
            "is half a character; write the other half, decode the bytes it came from as UTF-8, or remove it"
        ) from None
    return text


# Text from a model as a screen may show it: nothing in it steers the screen.
#
# A model may say escape sequences, which a terminal obeys, and marks that turn the direction of writing
# (U+202E), which make what follows read backwards. The letters of right-to-left scripts need no such marks.


_CONTROLS = (*range(32), *range(127, 160))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: "\N{REPLACEMENT CHARACTER}" for code in (*_CONTROLS, *_DIRECTIONS) if chr(code) not in "\n\t"}

_ESCAPED = {code: f"\\u{code:04x}" for code in _SHOWN}
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def replace_control_characters(text: str) -> str:
    """The text with every control character but newline and tab, and every mark of direction, replaced."""
    return text.translate(_SHOWN)


def message_line(text: str, most: int = 2000) -> str:
    """A message as one line: line breaks become spaces, control characters are replaced, the rest is cut."""
    joined = replace_control_characters(_BREAKS.sub(" ", text.strip()))
    return joined if len(joined) <= most else joined[: most - 1] + "…"


def escape_json(text: str) -> str:
    """JSON in which no character steers a terminal: each is written as \\u202e, which means the same.

    Line breaks and tabs stay: in JSON they can only stand between values.
    """
    return text.translate(_ESCAPED)


def escape_name(text: str, most: int = 200) -> str:
    """A name that a file gives, for a message: what is no plain character is escaped, the rest of it cut."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return "".join(it if it.isprintable() else repr(it)[1:-1] for it in cut)
