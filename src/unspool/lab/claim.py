"""A claim: its statement and source, the measurement, and the criterion for its reproduction.

    reproduced       every part of the criterion holds with every seed
    not reproduced   no part of it holds with any seed
    mixed            otherwise

The criterion is part of the claim's file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

T = TypeVar("T")
Number = float | list[float]
Numbers = Mapping[str, Number]
"""The measurements of one seed. A list is a curve for the figure, not for tables."""
Verdict = Literal["reproduced", "not reproduced", "mixed", "not run"]
Progress = Callable[[float], None]
"""Called with the progress, from 0 to 1."""


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


class Measure(Protocol):
    """A measurement; all randomness comes from `seed`. `quick` takes seconds and gives no valid verdict."""

    def __call__(self, seed: int, quick: bool, progress: Progress) -> Numbers:
        """Measure once."""
        ...


@dataclass(frozen=True)
class Source:
    """The document that makes the claim."""

    document: str
    section: str
    papers: tuple[str, ...] = ()
    """Keys in papers.bib of the papers that the document cites."""

    def __str__(self) -> str:
        return f"{self.document}, {self.section}"


@dataclass(frozen=True)
class Claim:
    """A claim with its experiment."""

    name: str
    statement: str
    source: Source
    measured: str
    """The experiment in words."""
    criterion: Mapping[str, Callable[[Any], bool]]
    """Its parts: a condition in words → the same as a function of the numbers of one seed."""
    measure: Measure
    draw: Callable[[Any, Sequence[Numbers]], None]
    """Draws the numbers of all seeds onto a matplotlib Figure."""
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


def lecture(section: str, *papers: str) -> Source:
    """Source: He He's lecture."""
    return Source("He He, Neural Sequence Generation (lecture, New York University, 2024)", section, papers)


def problems(section: str, *papers: str) -> Source:
    """Source: McAllester's problems."""
    title = "McAllester, Problems for Language Modeling, Translation and Attention"
    return Source(title, section, ("mcallester2020problems", *papers))


def kerbs(section: str, *papers: str) -> Source:
    """Source: the appendix of the KerBS paper."""
    title = "Miao et al. 2019, appendix of Kernelized Bayesian Softmax for Text Generation"
    return Source(title, section, ("miao2019kernelized", *papers))


def degeneration(section: str, *papers: str) -> Source:
    """Source: the paper on basis-aware sampling."""
    title = "Finlayson et al. 2024, Closing the Curious Case of Neural Text Degeneration"
    return Source(title, section, ("finlayson2024closing", *papers))


PACKAGE = Path(__file__).resolve().parents[1]
EXCLUDED = ("cli", "serve", "integrations", "lab")


def code_version(claim: Claim) -> str:
    """Return a fingerprint of the code that the numbers of a claim can depend on: 12 hexadecimal digits.

    It covers the claim's file, torch's version and the package without the command line, server, integrations
    and other claims (except those that the claim imports).
    """
    parts = [_package(PACKAGE), version("torch"), *_claims(PACKAGE / "lab" / "claims", claim.name)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _claims(folder: Path, name: str) -> list[str]:
    """Return the source of a claim, and of the claims that it imports."""
    path = folder / f"{name}.py"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    imported = sorted(set(re.findall(r"^from unspool\.lab\.claims\.(\w+) import", text, re.MULTILINE)))
    return [text, *(each for other in imported for each in _claims(folder, other))]


@cache
def _package(folder: Path) -> str:
    digest = hashlib.sha256()
    shared = sorted((folder / "lab").glob("small_*.py"))
    for path in [*sorted(folder.rglob("*.py")), *shared]:
        package = path.relative_to(folder).parts[0]
        if package not in EXCLUDED or path in shared:
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
