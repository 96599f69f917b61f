"""What a claim has measured with one seed, kept in a file of its own: a kill loses one measurement at most.

The file's name says what it is of: claim, size, seed, and the version of the code. A result of other code is
another file.
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
    """Of processor time."""


def results_folder(chosen: Path | None = None) -> Path:
    """Where results are kept: the folder that was chosen, or one in the user's cache."""
    return chosen or cache_folder() / "lab"


def result_path(folder: Path, claim: Claim, seed: int, quick: bool) -> Path:
    """Where the result of today's code is, if it is there."""
    size = "quick" if quick else "full"
    return folder / f"{claim.name}-{size}-seed{seed}-{code_version(claim)}.json"


def write(folder: Path, claim: Claim, result: Result) -> None:
    """Put a result into the folder, whole or not at all."""
    check(result)
    path = result_path(folder, claim, result.seed, result.quick)
    with new_file(path) as fresh:
        fresh.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")


def read(folder: Path, claim: Claim, seed: int, quick: bool, *, warn: Callable[[str], None]) -> Result | None:
    """The result, if it is there; of a damaged file it is said that it is one, and nothing is read."""
    path = result_path(folder, claim, seed, quick)
    try:
        found = result_of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        warn(f"{path} is damaged ({error}): it counts as not measured")
        return None
    if (found.claim, found.seed, found.quick) != (claim.name, seed, quick):
        warn(f"{path} holds {found.claim} with seed {found.seed}: it counts as not measured")
        return None
    return found


def result_of(record: Any) -> Result:
    """A result from JSON; ValueError where it is none."""
    wanted = {"claim": str, "seed": int, "quick": bool, "version": str, "numbers": dict, "seconds": float}
    if not isinstance(record, Mapping) or set(record) != set(wanted):
        raise ValueError(f"it is no result: it should have {', '.join(wanted)}")
    for key, kind in wanted.items():
        if not isinstance(record[key], kind):
            raise ValueError(f"its {key} is {record[key]!r:.40}")
    return check(Result(**record))


def check(result: Result) -> Result:
    """Refuse a number that is none: it would decide a verdict by how it compares."""
    for name, value in result.numbers.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bool) or not isinstance(each, int | float) or not math.isfinite(each):
                raise ValueError(
                    f"{result.claim}, seed {result.seed}: {name} is {each!r}, not a finite number"
                )
    return result


# What is known of every claim: its results of some seeds, its verdict, and its numbers with their spread.


@dataclass(frozen=True)
class Spread:
    """One number over all seeds."""

    mean: float
    deviation: float
    """Standard; 0 of one seed."""
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
        """What each seed has measured."""
        return [result.numbers for result in self.results]

    @property
    def verdict(self) -> Verdict:
        """The claim's, by its results."""
        return self.claim.verdict(self.runs)

    @property
    def parts(self) -> list[tuple[str, int, int]]:
        """Each part of the criterion: its words, with how many seeds it held, of how many."""
        rows = self.claim.held(self.runs)
        return [
            (part.words, sum(row), len(row)) for part, row in zip(self.claim.criterion, rows, strict=True)
        ]

    @property
    def spreads(self) -> dict[str, Spread]:
        """Every number that is no curve and that all seeds have measured."""
        runs = self.runs
        if not runs:
            return {}
        names = [it for it, value in runs[0].items() if not isinstance(value, list)]
        return {
            name: spread([run[name] for run in runs]) for name in names if all(name in run for run in runs)
        }

    def record(self) -> dict[str, Any]:
        """As JSON knows it."""
        return {
            "name": self.claim.name,
            "statement": self.claim.statement,
            "source": str(self.claim.source),
            "verdict": self.verdict,
            "parts": [{"words": words, "held": held, "of": seeds} for words, held, seeds in self.parts],
            "numbers": {name: asdict(it) for name, it in self.spreads.items()},
            "results": [asdict(result) for result in self.results],
        }


def spread(values: Sequence[Any]) -> Spread:
    """Mean, standard deviation, least and most."""
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
    """What today's code has measured, and the folder holds."""
    found = []
    for claim in claims:
        known = [read(folder, claim, seed, quick, warn=warn) for seed in seeds]
        found.append(Finding(claim, tuple(result for result in known if result is not None)))
    return found


def findings_of_file(path: Path, claims: Iterable[Claim]) -> list[Finding]:
    """What `unspool lab report --json` has written, judged anew by today's criteria."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        results = {
            each["name"]: tuple(result_of(result) for result in each["results"]) for each in record["claims"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no report of the lab ({error}): `unspool lab report --json` writes one"
        ) from error
    return [Finding(claim, results.get(claim.name, ())) for claim in claims]
