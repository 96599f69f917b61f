"""Which code has measured: a fingerprint of the sources that a claim's numbers can depend on.

Those are all of the package but the command line, the server, the adapters, and the files of other claims: a
change to one claim leaves what is known of the others.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

from unspool.lab.claim import Claim

PACKAGE = Path(__file__).resolve().parents[1]
ASIDE = ("cli", "serve", "adapters", "lab")


def code_version(claim: Claim) -> str:
    """Twelve digits, of the claim's own file, of the package and of torch."""
    own = PACKAGE / "lab" / "claims" / f"{claim.name}.py"
    parts = [_package(PACKAGE), version("torch"), own.read_text(encoding="utf-8") if own.exists() else ""]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@cache
def _package(folder: Path) -> str:
    found = hashlib.sha256()
    shared = sorted((folder / "lab").glob("small_*.py"))
    for path in [*sorted(folder.rglob("*.py")), *shared]:
        room = path.relative_to(folder).parts[0]
        if room not in ASIDE or path in shared:
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
