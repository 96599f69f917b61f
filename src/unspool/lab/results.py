"""Results of claims: one file per claim and seed, so that a crash loses at most one measurement.

A result names the plan that was registered and the code that it depends on. It is stale if either has
changed. `Finding` combines the results of a claim over seeds.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unspool.config import build
from unspool.errors import note
from unspool.io import cache_folder, new_file
from unspool.lab.claim import FIRST_SEED, Check, Claim, Experiment, Numbers, Verdict
from unspool.lab.dependencies import code_version
from unspool.lab.inference import Effect, t_interval
from unspool.lab.inputs import described
from unspool.lab.registry import digest


@dataclass(frozen=True)
class Result:
    """One measurement."""

    claim: str
    seed: int
    quick: bool
    plan: str
    """Fingerprint of the registered plan."""
    code: str
    """Fingerprint of the code (`dependencies`)."""
    numbers: Numbers
    seconds: float
    """Processor time."""
    data: str = ""
    """The inputs that it has read (`inputs`); a quick run reads none."""
    probe: Numbers = field(default_factory=dict)
    """With the first seed, the numbers of a quick run of the same code."""

    @property
    def file_name(self) -> str:
        kind = "quick" if self.quick else "full"
        return f"{self.claim}-{kind}-seed{self.seed}-{self.plan[:6]}-{self.code}.json"


def results_folder(chosen: Path | None = None) -> Path:
    return chosen or cache_folder() / "lab"


def write(folder: Path, result: Result) -> Path:
    path = folder / check(result).file_name
    with new_file(path) as fresh:
        fresh.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")
    return path


def read(folder: Path, claim: Experiment, seed: int, quick: bool, *, older: bool = False) -> Result | None:
    """Read a result; None if it is missing, or, with a warning, damaged.

    `older` accepts the newest result of older code or an older plan if there is none of the current.
    """
    wanted = Result(claim.name, seed, quick, digest(claim.plan()), code_version(claim), {}, 0.0)
    path = folder / wanted.file_name
    if older and not path.exists():
        others = folder.glob(replace(wanted, plan="*", code="*").file_name)
        path = max(others, key=lambda it: it.stat().st_mtime, default=path)
    try:
        result = result_of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except ValueError as error:
        note(f"{path} is damaged ({error}): ignored")
        return None
    return result if older or quick or result.data == described(claim.needs) else None


def result_of(record: Any) -> Result:
    """Make a result from JSON; raise a ValueError if it is not one."""
    if not isinstance(record, dict):
        raise ValueError(f"{record!r:.40} is not a result")
    return check(build(Result, record, "result"))


def check(result: Result) -> Result:
    """Raise a ValueError for numbers that are not finite, because they would decide verdicts."""
    for name, value in result.numbers.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bool) or not isinstance(each, int | float) or not math.isfinite(each):
                raise ValueError(
                    f"{result.claim}, seed {result.seed}: {name} is {each!r}, not a finite number"
                )
    return result


@dataclass(frozen=True)
class Spread:
    """One number over all seeds, with the t interval of its mean."""

    mean: float
    low: float | None
    high: float | None
    least: float
    most: float

    def __str__(self) -> str:
        if self.least == self.most or self.low is None:
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Finding:
    """A claim and its results, in the order of seeds."""

    claim: Experiment
    results: tuple[Result, ...]
    confirmed: str = ""
    """Later code whose quick run gives the same numbers as that of the code that measured."""

    @property
    def current(self) -> list[Result]:
        """The results under today's plan. Those of older plans can lack numbers, and decide nothing."""
        plan = digest(self.claim.plan())
        return [result for result in self.results if result.plan == plan]

    @property
    def runs(self) -> list[Numbers]:
        return [result.numbers for result in self.current]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the claim; a quick run has none."""
        if any(result.quick for result in self.results):
            return "quick run"
        return self.claim.verdict(self.runs)

    @cached_property
    def effect(self) -> Effect | None:
        return self.claim.effect(self.runs) if isinstance(self.claim, Claim) else None

    @property
    def is_stale(self) -> bool:
        """Whether the plan has changed since the measurement, or the code and the numbers of a quick run."""
        if len(self.current) < len(self.results):
            return True
        code = code_version(self.claim) if self.results else ""
        return self.confirmed != code and any(it.code != code for it in self.results)

    @property
    def parts(self) -> list[tuple[str, int, int]]:
        """For each part of a check: its words, with how many seeds it held, and the number of seeds."""
        if not isinstance(self.claim, Check):
            return []
        rows = zip(self.claim.criterion, self.claim.held(self.runs), strict=True)
        return [(words, sum(row), len(row)) for words, row in rows]

    @property
    def spreads(self) -> dict[str, Spread]:
        """Every number that all seeds have measured, without curves; secondary quantities first."""
        runs = self.runs
        if not runs:
            return {}
        secondary = self.claim.secondary if isinstance(self.claim, Claim) else ()
        names = [it for it, value in runs[0].items() if not isinstance(value, list) and it != "effect"]
        names.sort(key=lambda name: secondary.index(name) if name in secondary else len(secondary))
        return {
            name: spread([run[name] for run in runs]) for name in names if all(name in run for run in runs)
        }

    def record(self) -> dict[str, Any]:
        effect = self.effect
        return {
            "name": self.claim.name,
            "kind": type(self.claim).__name__.lower(),
            "statement": self.claim.statement,
            "source": self.claim.source,
            "verdict": self.verdict,
            "effect": effect and {**asdict(effect), "low": _finite(effect.low), "high": _finite(effect.high)},
            "parts": [{"words": words, "held": held, "of": seeds} for words, held, seeds in self.parts],
            "numbers": {name: asdict(it) for name, it in self.spreads.items()},
            "confirmed": self.confirmed,
            "results": [asdict(result) for result in self.results],
        }


def spread(values: Sequence[Any]) -> Spread:
    low, high = map(_finite, t_interval(values))
    return Spread(statistics.fmean(values), low, high, min(values), max(values))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def findings(
    claims: Iterable[Experiment],
    seeds: Sequence[int] | None = None,
    *,
    folder: Path,
    quick: bool = False,
) -> list[Finding]:
    """Read results from a folder: those of the current code, or else stale ones. Default: all seeds."""
    found = []
    for claim in claims:
        chosen = claim.default_seeds(quick) if seeds is None else seeds
        each = (read(folder, claim, seed, quick, older=True) for seed in chosen)
        results = tuple(it for it in each if it is not None)
        found.append(confirm(Finding(claim, results), folder))
    return found


def confirm(finding: Finding, folder: Path) -> Finding:
    """Return the finding with the code of the newest quick run in the folder, if its numbers agree."""
    now = read(folder, finding.claim, FIRST_SEED, True)
    probes = [it.probe for it in finding.results if it.probe]
    is_one = len({it.code for it in finding.results}) == 1
    same = now and probes and is_one and agree(probes[0], now.numbers)
    return replace(finding, confirmed=now.code) if now and same else finding


def agree(one: Numbers, other: Numbers) -> bool:
    """Whether numbers differ by rounding at most."""
    return one.keys() == other.keys() and all(
        np.shape(value) == np.shape(other[name]) and np.allclose(value, other[name], rtol=1e-3, atol=1e-5)
        for name, value in one.items()
    )


def findings_of_file(path: Path, claims: Iterable[Experiment]) -> list[Finding]:
    """Read the results that `unspool lab report --json` wrote, and decide them anew."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found = {
            each["name"]: (tuple(map(result_of, each["results"])), each["confirmed"])
            for each in record["claims"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a report of `unspool lab report --json` ({error})") from error
    return [Finding(claim, *found.get(claim.name, ((), ""))) for claim in claims]


def copy_results(path: Path, claims: Iterable[Experiment], folder: Path) -> None:
    """Copy the results that `unspool lab report --json` wrote to a folder, as older than those in it."""
    for finding in findings_of_file(path, claims):
        for result in finding.results:
            if not (folder / result.file_name).exists():
                os.utime(write(folder, result), (0, 0))
