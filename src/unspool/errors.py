"""Checks of errors and of text: out of memory, lone surrogates, terminal control characters; notes."""

from __future__ import annotations

import errno
import re
import warnings


class Note(UserWarning):
    """A warning about an input, which the command line prints as a message."""


def note(text: str) -> None:
    """Warn about an input, once in each call of a command."""
    warnings.warn(text, Note, stacklevel=1)


def is_out_of_memory(error: Exception) -> bool:
    """True if Python, numpy, torch or the system ran out of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "allocate memory" in str(error)  # torch raises RuntimeError


def check_surrogates(text: str, what: str) -> str:
    r"""Return the text; ValueError if it contains a lone surrogate, which tokenizers cannot read.

    They occur in command-line arguments that are not UTF-8, and in JSON such as "\ud800".
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} has a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}, which "
            "is half a character; write the other half, decode the bytes it came from as UTF-8, or remove it"
        ) from None
    return text


# Models may generate escape sequences, which control terminals, and direction marks (U+202E), which reverse
# the text that follows. Letters of right-to-left scripts do not need such marks.
_CONTROLS = (*range(32), *range(127, 160))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN = {code: "\N{REPLACEMENT CHARACTER}" for code in (*_CONTROLS, *_DIRECTIONS) if chr(code) not in "\n\t"}

_ESCAPED = {code: f"\\u{code:04x}" for code in _SHOWN}
_BREAKS = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def replace_control_characters(text: str) -> str:
    """Replace control characters, except newline and tab, and direction marks."""
    return text.translate(_SHOWN)


def clip(text: str, most: int) -> str:
    """Shorten a text to `most` characters; the last one is then an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def message_line(text: str, most: int = 2000) -> str:
    """Return a message as one line of at most `most` characters, without control characters."""
    return clip(replace_control_characters(_BREAKS.sub(" ", text.strip())), most)


def escape_json(text: str) -> str:
    """Escape control characters in JSON as \\u202e; line breaks and tabs between values stay."""
    return text.translate(_ESCAPED)


def escape_name(text: str, most: int = 200) -> str:
    """Escape and shorten a name from a file, for a message."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in clip(text, most))
