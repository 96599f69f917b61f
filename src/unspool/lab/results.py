"""Results of claims: one file per claim and seed, so that a crash loses at most one measurement.

The file name contains the claim, the size, the seed and the fingerprint of the code. `Finding` combines the
results of a claim over seeds.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unspool.io import cache_folder, new_file
from unspool.lab.claim import Claim, Numbers, Verdict, code_version, silent


@dataclass(frozen=True)
class Result:
    """One measurement."""

    claim: str
    seed: int
    quick: bool
    version: str
    numbers: Numbers
    seconds: float
    """Processor time."""


def results_folder(chosen: Path | None = None) -> Path:
    """Return the folder of results: `chosen`, or one in the user's cache."""
    return chosen or cache_folder() / "lab"


def result_path(folder: Path, claim: Claim, seed: int, quick: bool) -> Path:
    """Return the path of the result of the current code."""
    size = "quick" if quick else "full"
    return folder / f"{claim.name}-{size}-seed{seed}-{code_version(claim)}.json"


def write(folder: Path, claim: Claim, result: Result) -> None:
    """Write a result atomically."""
    check(result)
    path = result_path(folder, claim, result.seed, result.quick)
    with new_file(path) as fresh:
        fresh.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")


def read(folder: Path, claim: Claim, seed: int, quick: bool, *, warn: Callable[[str], None]) -> Result | None:
    """Read a result; None if it is missing, or, with a warning, damaged."""
    path = result_path(folder, claim, seed, quick)
    try:
        result = result_of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        warn(f"{path} is damaged ({error}): ignored")
        return None
    if (result.claim, result.seed, result.quick) != (claim.name, seed, quick):
        warn(f"{path} holds {result.claim} with seed {result.seed}: ignored")
        return None
    return result


def result_of(record: Any) -> Result:
    """Make a result from JSON; raise a ValueError if it is not one."""
    fields = {"claim": str, "seed": int, "quick": bool, "version": str, "numbers": dict, "seconds": float}
    if not isinstance(record, Mapping) or set(record) != set(fields):
        raise ValueError(f"expected the fields {', '.join(fields)}")
    for key, kind in fields.items():
        if not isinstance(record[key], kind):
            raise ValueError(f"its {key} is {record[key]!r:.40}")
    return check(Result(**record))


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
    """One number over all seeds."""

    mean: float
    deviation: float
    """Standard deviation; 0 for one seed."""
    least: float
    most: float

    def __str__(self) -> str:
        if self.least == self.most:
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} ± {self.deviation:.2g}"


@dataclass(frozen=True)
class Finding:
    """A claim and its results, in the order of seeds."""

    claim: Claim
    results: tuple[Result, ...]

    @property
    def runs(self) -> list[Numbers]:
        """The numbers of each seed."""
        return [result.numbers for result in self.results]

    @property
    def verdict(self) -> Verdict:
        """The verdict of the claim; a quick run has none."""
        if any(result.quick for result in self.results):
            return "no verdict (quick run)"
        return self.claim.verdict(self.runs)

    @property
    def parts(self) -> list[tuple[str, int, int]]:
        """For each part of the criterion: its words, with how many seeds it held, and the number of seeds."""
        rows = zip(self.claim.criterion, self.claim.held(self.runs), strict=True)
        return [(words, sum(row), len(row)) for words, row in rows]

    @property
    def spreads(self) -> dict[str, Spread]:
        """Every number that all seeds have measured, without curves."""
        runs = self.runs
        if not runs:
            return {}
        names = [it for it, value in runs[0].items() if not isinstance(value, list)]
        return {
            name: spread([run[name] for run in runs]) for name in names if all(name in run for run in runs)
        }

    def record(self) -> dict[str, Any]:
        """Return the finding as JSON data."""
        return {
            "name": self.claim.name,
            "statement": self.claim.statement,
            "source": self.claim.source,
            "verdict": self.verdict,
            "parts": [{"words": words, "held": held, "of": seeds} for words, held, seeds in self.parts],
            "numbers": {name: asdict(it) for name, it in self.spreads.items()},
            "results": [asdict(result) for result in self.results],
        }


def spread(values: Sequence[Any]) -> Spread:
    """Return mean, standard deviation, minimum and maximum."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), deviation, min(values), max(values))


def findings(
    claims: Iterable[Claim],
    seeds: Sequence[int],
    *,
    folder: Path,
    quick: bool = False,
    warn: Callable[[str], None] = silent,
) -> list[Finding]:
    """Read the results of the current code from a folder."""
    found = []
    for claim in claims:
        results = (read(folder, claim, seed, quick, warn=warn) for seed in seeds)
        found.append(Finding(claim, tuple(result for result in results if result is not None)))
    return found


def findings_of_file(path: Path, claims: Iterable[Claim]) -> list[Finding]:
    """Read the results that `unspool lab report --json` wrote, and apply the current criteria."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        results = {
            each["name"]: tuple(result_of(result) for result in each["results"]) for each in record["claims"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a report of `unspool lab report --json` ({error})") from error
    return [Finding(claim, results.get(claim.name, ())) for claim in claims]
