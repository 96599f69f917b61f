"""The register: what every claim and check stated, version by version, before it was measured.

`registrations.json` only grows. A version has its date, the plan (`Experiment.plan`), the reason for the
change, and a hash of these and of the version before it. Versions before 2026-11-18 have their results too,
because these were known when the next version was written.

    python -m unspool.lab.registry --why "…" [CLAIM …]     register changed claims, or those that are named
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from unspool.io import new_file
from unspool.lab.claim import Experiment

REGISTER = Path(__file__).with_name("registrations.json")

Version = Mapping[str, Any]


def digest(data: object) -> str:
    """Return a fingerprint of JSON data: 16 hexadecimal digits."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def version_hash(version: Version, previous: str) -> str:
    """Return the hash of a version that follows the version with the hash `previous`."""
    return digest([previous, {key: value for key, value in version.items() if key != "hash"}])


@cache
def registered() -> dict[str, list[Version]]:
    """Return the versions of every claim and check, the oldest first."""
    found: dict[str, list[Version]] = json.loads(REGISTER.read_text(encoding="utf-8"))
    return found


def latest(experiment: Experiment) -> Version | None:
    """Return the last version, or None if the experiment differs from it or was never registered."""
    versions = registered().get(experiment.name, [])
    return versions[-1] if versions and versions[-1].get("plan") == experiment.plan() else None


def register(experiments: Sequence[Experiment], why: str, date: str) -> list[str]:
    """Append a version of every experiment that changed; return their names."""
    register_, changed = dict(registered()), []
    for it in experiments:
        if latest(it) is not None:
            continue
        versions = register_.get(it.name, [])
        version = {"version": len(versions) + 1, "date": date, "why": why, "plan": it.plan()}
        previous = versions[-1]["hash"] if versions else ""
        register_[it.name] = [*versions, {**version, "hash": version_hash(version, previous)}]
        changed.append(it.name)
    with new_file(REGISTER) as fresh:
        text = json.dumps(register_, indent=1, ensure_ascii=False)
        fresh.write_text(text + "\n", encoding="utf-8")
    registered.cache_clear()
    return changed


def main() -> None:
    from unspool.lab.claims import CLAIMS

    parser = argparse.ArgumentParser(description="Register changed claims before they are measured.")
    parser.add_argument("names", nargs="*", help="claims (default: all that changed)")
    parser.add_argument("--why", required=True, help="what changed, and why")
    args = parser.parse_args()
    chosen = [it for it in CLAIMS if not args.names or it.name in args.names]
    print(*register(chosen, args.why, f"{datetime.now(UTC):%Y-%m-%d}"), sep="\n")


if __name__ == "__main__":
    main()
