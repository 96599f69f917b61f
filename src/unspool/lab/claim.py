"""What the lab runs: claims about the world, and checks of the code.

A claim registers one primary effect before it is measured (`registry`). Its verdict follows from the 95 %
interval of that effect over seeds, and over prompts or pairs within seeds (`inference`):

    supported      the interval lies above `matters`, the smallest effect that matters
    contradicted   the interval lies below `contradicted_below`
    cannot tell    otherwise

A check is a theorem or an identity: it confirms the code, not the world. It holds if every part of its
criterion holds with every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from unspool.lab.inference import Effect, estimate, power

T = TypeVar("T")
Number = float | list[float]
Numbers = Mapping[str, Number]
"""The measurements of one seed. A list is a curve for the figure, not for tables.

`effect` is the primary effect of a claim: one number, or one for each unit (prompt, text, pair)."""
Verdict = Literal[
    "supported", "contradicted", "cannot tell", "holds", "fails", "incomplete", "not run", "quick run"
]
Progress = Callable[[float], None]
"""Called with the progress, from 0 to 1."""
Measure = Callable[[int, bool, Progress], Numbers]
"""(seed, quick, progress) → numbers. All randomness comes from `seed`. `quick` takes seconds."""
Draw = Callable[[Any, Sequence[Numbers]], None]
"""Draws the numbers of all seeds onto a matplotlib Figure."""
Criterion = Mapping[str, Callable[[Any], bool]]
"""A condition in words → the same as a function of the numbers of one seed."""

FIRST_SEED = 101
"""Seeds 1 to 20 were used while the experiments were set up."""

LECTURE = "He He, Neural Sequence Generation (lecture, New York University, 2024)"
PROBLEMS = "McAllester, Problems for Language Modeling, Translation and Attention"
KERBS = "Miao et al. 2019, appendix of Kernelized Bayesian Softmax for Text Generation"
DEGENERATION = "Finlayson et al. 2024, Closing the Curious Case of Neural Text Degeneration"


def silent(*_: object) -> None:
    """Ignore progress."""


def tracked(todo: Iterable[T], progress: Progress) -> Iterator[T]:
    """Yield the items, and report progress after each."""
    items = list(todo)
    for done, item in enumerate(items, start=1):
        yield item
        progress(done / len(items))


def points(label: str, xs: Sequence[float], curves: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The points of curves as numbers for tables; `label` formats the name of the curve and x."""
    return {label.format(name, x): y for name, ys in curves.items() for x, y in zip(xs, ys, strict=False)}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A statement and the function that measures it."""

    name: str
    statement: str
    source: str
    """The document that makes the claim, and the section."""
    measured: str
    measure: Measure
    draw: Draw
    seeds: int
    """The number of seeds of a complete run."""
    limits: str = ""
    comment: str = ""
    """An explanation that was written after the result; it is no part of the plan."""
    needs: tuple[str, ...] = ()
    """What it reads besides this package (`inputs`)."""

    def default_seeds(self, quick: bool) -> list[int]:
        """Return the seeds of a complete run, or the first of them."""
        return [FIRST_SEED + at for at in range(1 if quick else self.seeds)]

    def plan(self) -> dict[str, Any]:
        """Everything that is registered, as JSON data."""
        keys = ("statement", "source", "measured", "seeds")
        return {"kind": type(self).__name__.lower(), **{key: getattr(self, key) for key in keys}}

    def verdict(self, runs: Sequence[Numbers]) -> Verdict:
        raise NotImplementedError


E = TypeVar("E", bound=Experiment)


@dataclass(frozen=True, kw_only=True)
class Claim(Experiment):
    """A claim about the world, decided by the interval of one effect."""

    seeds: int = 10
    primary: str
    """The effect in words. Positive values support the claim."""
    matters: float
    contradicted_below: float = 0.0
    """An interval below this value contradicts the claim."""
    unit: str = "seed"
    """What the numbers of `effect` in one seed are: one of the seed itself, or one of each prompt, …"""
    crossed: int = 0
    """How many units there are if all seeds have the same ones."""
    assumed: tuple[float, float]
    """The effect, and its standard deviation between seeds or common units, for which `power` is computed."""
    secondary: tuple[str, ...] = ()
    """Other numbers that were to be reported; they have no influence on the verdict."""

    @property
    def power(self) -> float:
        """The probability of the verdict "supported" if the assumed effect and deviation are true."""
        effect, deviation = self.assumed
        return power(effect - self.matters, deviation, min(self.seeds, self.crossed or self.seeds))

    def plan(self) -> dict[str, Any]:
        keys = ("primary", "matters", "contradicted_below", "unit", "crossed")
        own = {key: getattr(self, key) for key in keys}
        lists = {"assumed": list(self.assumed), "secondary": list(self.secondary)}
        return {**super().plan(), **own, **lists, "power": round(self.power, 3)}

    def effect(self, runs: Sequence[Numbers]) -> Effect | None:
        return estimate([run["effect"] for run in runs], crossed=bool(self.crossed)) if runs else None

    def verdict(self, runs: Sequence[Numbers]) -> Verdict:
        found = self.effect(runs)
        if found is None:
            return "not run"
        if len(runs) < self.seeds:
            return "incomplete"
        if found.low > self.matters:
            return "supported"
        return "contradicted" if found.high < self.contradicted_below else "cannot tell"


@dataclass(frozen=True, kw_only=True)
class Check(Experiment):
    """A theorem or an identity, which must hold with every seed."""

    seeds: int = 3
    criterion: Criterion

    def plan(self) -> dict[str, Any]:
        return {**super().plan(), "criterion": list(self.criterion)}

    def held(self, runs: Sequence[Numbers]) -> list[list[bool]]:
        """For every part and seed whether it holds."""
        return [[bool(holds(numbers)) for numbers in runs] for holds in self.criterion.values()]

    def verdict(self, runs: Sequence[Numbers]) -> Verdict:
        if not runs:
            return "not run"
        if not all(all(row) for row in self.held(runs)):
            return "fails"
        return "holds" if len(runs) >= self.seeds else "incomplete"


def _experiment(kind: type[E], statement: str, **others: Any) -> Callable[[Measure], E]:
    """Make a claim or check of the function that measures it; its name is that of the function."""
    return lambda measure: kind(name=measure.__name__, statement=statement, measure=measure, **others)


claim, check = partial(_experiment, Claim), partial(_experiment, Check)
