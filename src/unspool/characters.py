"""Whether a string holds half a character: a str may, and no tokenizer reads one.

A shell's argument that is not UTF-8 and JSON's "\\ud800" both make one.
"""

from __future__ import annotations


def check_characters(text: str, what: str) -> str:
    """The text, unless it holds half a character; `what` names it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} has a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}, which "
            "is half a character; write the other half, decode the bytes it came from as UTF-8, or remove it"
        ) from None
    return text
