"""What an engine is asked to do: decode some prompts in a mode, always for the same number of tokens."""

from __future__ import annotations

from dataclasses import dataclass

DECODERS = ("greedy", "top-p 0.9", "beam 4")
BEAMS = 4
TOP_P = 0.9


@dataclass(frozen=True)
class Mode:
    """A decoder and the number of prompts side by side, written as "greedy x8"."""

    decoder: str
    rows: int = 1

    def __str__(self) -> str:
        return self.decoder if self.rows == 1 else f"{self.decoder} x{self.rows}"


def parse_mode(text: str) -> Mode:
    decoder, cross, rows = text.partition(" x")
    if decoder not in DECODERS or (cross and not (rows.isdecimal() and int(rows) > 0)):
        raise ValueError(
            f"mode {text!r} is unknown: expected {', '.join(DECODERS)}, alone or with a number of rows "
            'as in "greedy x8"'
        )
    return Mode(decoder, int(rows or 1))


@dataclass(frozen=True)
class Work:
    """One generation: as many new tokens for every prompt, whatever they are."""

    prompts: list[list[int]]
    new: int
    decoder: str
