"""A claim: what is said and where, what is measured, and by what it counts as reproduced.

    reproduced       every part of the criterion holds with every seed
    not reproduced   no part of it holds with any seed
    mixed            anything between

The criterion is part of the claim's file, and was written there before the claim was first measured.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
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


# The four documents whose claims are measured here; a claim adds the section.


LECTURE = "He He, Neural Sequence Generation (lecture, New York University, 2024)"
PROBLEMS = "McAllester, Problems for Language Modeling, Translation and Attention"
KERBS = "Miao et al. 2019, appendix of Kernelized Bayesian Softmax for Text Generation"
DEGENERATION = "Finlayson et al. 2024, Closing the Curious Case of Neural Text Degeneration"


def lecture(section: str, *papers: str) -> Source:
    """He He's slides."""
    return Source(LECTURE, section, papers)


def problems(section: str, *papers: str) -> Source:
    """McAllester's problems, with their solutions."""
    return Source(PROBLEMS, section, ("mcallester2020problems", *papers))


def kerbs(section: str, *papers: str) -> Source:
    """The appendix on kernelized senses."""
    return Source(KERBS, section, ("miao2019kernelized", *papers))


def degeneration(section: str, *papers: str) -> Source:
    """Why truncation works, and the basis-aware test."""
    return Source(DEGENERATION, section, ("finlayson2024closing", *papers))


PACKAGE = Path(__file__).resolve().parents[1]
ASIDE = ("cli", "serve", "integrations", "lab")


def code_version(claim: Claim) -> str:
    """Twelve digits, of the claim's own file, of the package and of torch.

    Which code has measured: a fingerprint of the sources that a claim's numbers can depend on.

    Those are all of the package but the command line, the server, the adapters, and the files of other claims
    (unless the claim imports from them): a change to one claim leaves what is known of the others.
    """
    parts = [_package(PACKAGE), version("torch"), *_claims(PACKAGE / "lab" / "claims", claim.name)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _claims(folder: Path, name: str) -> list[str]:
    """The text of a claim's file, and of the claims that it imports from."""
    path = folder / f"{name}.py"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    imported = sorted(set(re.findall(r"^from unspool\.lab\.claims\.(\w+) import", text, re.MULTILINE)))
    return [text, *(each for other in imported for each in _claims(folder, other))]


@cache
def _package(folder: Path) -> str:
    found = hashlib.sha256()
    shared = sorted((folder / "lab").glob("small_*.py"))
    for path in [*sorted(folder.rglob("*.py")), *shared]:
        room = path.relative_to(folder).parts[0]
        if room not in ASIDE or path in shared:
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
