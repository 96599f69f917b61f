"""A claim: its statement and source, the measurement, and the criterion for its reproduction.

    reproduced       every part of the criterion holds with every seed
    not reproduced   no part of it holds with any seed
    mixed            otherwise

The criterion is written beside the measurement.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Number = float | list[float]
Numbers = Mapping[str, Number]
"""The measurements of one seed. A list is a curve for the figure, not for tables."""
Verdict = Literal["reproduced", "not reproduced", "mixed", "not run", "no verdict (quick run)"]
Progress = Callable[[float], None]
"""Called with the progress, from 0 to 1."""
Measure = Callable[[int, bool, Progress], Numbers]
"""(seed, quick, progress) → numbers. All randomness comes from `seed`. `quick` takes seconds."""
Draw = Callable[[Any, Sequence[Numbers]], None]
"""Draws the numbers of all seeds onto a matplotlib Figure."""
Criterion = Mapping[str, Callable[[Any], bool]]
"""A condition in words → the same as a function of the numbers of one seed."""

LECTURE = "He He, Neural Sequence Generation (lecture, New York University, 2024)"
PROBLEMS = "McAllester, Problems for Language Modeling, Translation and Attention"
KERBS = "Miao et al. 2019, appendix of Kernelized Bayesian Softmax for Text Generation"
DEGENERATION = "Finlayson et al. 2024, Closing the Curious Case of Neural Text Degeneration"


def silent(*_: object) -> None:
    """Ignore progress or warnings."""


def tracked(todo: Iterable[T], progress: Progress) -> Iterator[T]:
    """Yield the items, and report progress after each."""
    items = list(todo)
    for done, item in enumerate(items, start=1):
        yield item
        progress(done / len(items))


def points(label: str, xs: Sequence[float], curves: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the points of curves as numbers for tables; `label` formats the name of the curve and x."""
    return {label.format(name, x): y for name, ys in curves.items() for x, y in zip(xs, ys, strict=False)}


@dataclass(frozen=True)
class Claim:
    """A claim with its experiment."""

    name: str
    statement: str
    source: str
    """The document that makes the claim, and the section."""
    measured: str
    """The experiment in words."""
    criterion: Criterion
    measure: Measure
    draw: Draw
    limits: str = ""
    """Limits of the experiment."""
    size: tuple[float, float] = (6.4, 3.0)
    """Size of the figure in inches."""

    def held(self, runs: Sequence[Numbers]) -> list[list[bool]]:
        """Return for every part and seed whether it holds."""
        return [[bool(holds(numbers)) for numbers in runs] for holds in self.criterion.values()]

    def verdict(self, runs: Sequence[Numbers]) -> Verdict:
        """Return the verdict over all seeds."""
        held = [each for row in self.held(runs) for each in row]
        if not held:
            return "not run"
        return "reproduced" if all(held) else "mixed" if any(held) else "not reproduced"


def claim(
    statement: str, *, source: str, measured: str, criterion: Criterion, draw: Draw, **others: Any
) -> Callable[[Measure], Claim]:
    """Make a claim of the function that measures it; its name is that of the function."""
    return lambda measure: Claim(
        measure.__name__, statement, source, measured, criterion, measure, draw, **others
    )


PACKAGE = Path(__file__).resolve().parents[1]
EXCLUDED = ("cli", "serve", "integrations", "lab")


def code_version(claim: Claim) -> str:
    """Return a fingerprint of the code that the numbers of a claim can depend on: 12 hexadecimal digits.

    It covers the claim's module, torch's version, `small_models` and the package without the command line,
    the server, the integrations and the lab.
    """
    module = Path(str(sys.modules[claim.measure.__module__].__file__)).read_text(encoding="utf-8")
    parts = [_package(PACKAGE), version("torch"), module]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@cache
def _package(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder)
        if name.parts[0] not in EXCLUDED or path.name == "small_models.py":
            digest.update(name.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
