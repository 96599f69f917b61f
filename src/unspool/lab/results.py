"""What a claim has measured with one seed, kept in a file of its own: a kill loses one measurement at most.

The file's name says what it is of: claim, size, seed, and the version of the code. A result of other code is
another file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unspool.files.atomic import new_file
from unspool.files.cache import cache_folder
from unspool.lab.claim import Claim, Numbers
from unspool.lab.code_version import code_version


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
