"""A claim: what is said and where, what is measured, and by what it counts as reproduced.

    reproduced       every part of the criterion holds with every seed
    not reproduced   no part of it holds with any seed
    mixed            anything between

The criterion is part of the claim's file, and was written there before the claim was first measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Number = float | list[float]
Numbers = Mapping[str, Number]
"""What one seed has measured. A list is a curve: it is drawn, and left out of tables."""
Verdict = Literal["reproduced", "not reproduced", "mixed", "not run"]
Progress = Callable[[float], None]
"""Called with the share that is done, from 0 to 1."""


def silent(*said: object) -> None:
    """Nobody wants to know."""
    del said


class Measure(Protocol):
    """Everything random comes from `seed`; `quick` asks for seconds and promises no verdict worth having."""

    def __call__(self, seed: int, quick: bool, progress: Progress) -> Numbers:
        """Measure once."""
        ...


@dataclass(frozen=True)
class Source:
    """Where the claim is made."""

    document: str
    section: str
    papers: tuple[str, ...] = ()
    """Keys in the file papers.bib of what the document has it from."""

    def __str__(self) -> str:
        return f"{self.document}, {self.section}"


@dataclass(frozen=True)
class Part:
    """One condition of a criterion, in words and as a function of what one seed has measured."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Claim:
    """One experiment."""

    name: str
    statement: str
    source: Source
    measured: str
    """On what, and how."""
    criterion: tuple[Part, ...]
    measure: Measure
    draw: Callable[[Any, Sequence[Numbers]], None]
    """Onto a matplotlib Figure, from what every seed has measured."""
    limits: str = ""
    """What the experiment does not show."""
    size: tuple[float, float] = (6.4, 3.0)
    """Of the figure, in inches."""

    def held(self, runs: Sequence[Numbers]) -> list[list[bool]]:
        """Of every part: with which seeds it holds."""
        return [[bool(part.holds(numbers)) for numbers in runs] for part in self.criterion]

    def verdict(self, runs: Sequence[Numbers]) -> Verdict:
        """By what all seeds have measured."""
        held = [each for row in self.held(runs) for each in row]
        if not held:
            return "not run"
        return "reproduced" if all(held) else "mixed" if any(held) else "not reproduced"
