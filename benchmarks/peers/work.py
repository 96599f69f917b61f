"""What an engine is asked to do: decode some prompts in a mode, always for the same number of tokens.

greedy      the most probable token          top-p 0.9   drawn from the nucleus of that mass
beam 4      the best of so many hypotheses   greedy x8   eight prompts side by side
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MODE = re.compile(r"(?:greedy|top-p (?P<top_p>0\.\d+)|beam (?P<beams>[1-9]\d*))(?: x(?P<rows>[1-9]\d*))?")


@dataclass(frozen=True)
class Work:
    """One generation: as many new tokens for every prompt, whatever they are."""

    prompts: list[list[int]]
    new: int
    beams: int = 1
    top_p: float | None = None
    """The mass of the nucleus that is drawn from; None: nothing is drawn."""


@dataclass(frozen=True)
class Mode:
    """A decoder and the number of prompts side by side."""

    name: str
    beams: int = 1
    top_p: float | None = None
    rows: int = 1

    def __str__(self) -> str:
        return self.name

    @property
    def greedy(self) -> bool:
        return self.beams == 1 and self.top_p is None

    def work(self, prompts: list[list[int]], new: int) -> Work:
        """As many of the prompts as there are rows, from the first again after the last."""
        rows = [prompts[row % len(prompts)] for row in range(self.rows)]
        return Work(rows, new, self.beams, self.top_p)


def parse_mode(text: str) -> Mode:
    found = MODE.fullmatch(text)
    if found is None:
        raise ValueError(
            f'mode {text!r} is unknown: expected "greedy", "top-p 0.9" or "beam 4", alone or with a number of '
            'rows as in "greedy x8"'
        )
    top_p = None if found["top_p"] is None else float(found["top_p"])
    return Mode(text, int(found["beams"] or 1), top_p, int(found["rows"] or 1))
