"""What is known of every claim: its results of some seeds, its verdict, and its numbers with their spread."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unspool.lab.claim import Claim, Numbers, Verdict, silent
from unspool.lab.results import Result, read, result_of


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
