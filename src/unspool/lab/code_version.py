"""Which code has measured: a fingerprint of the sources that a claim's numbers can depend on.

Those are all of the package but the command line, the server, the adapters, and the files of other claims
(unless the claim imports from them): a change to one claim leaves what is known of the others.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

from unspool.lab.claim import Claim

PACKAGE = Path(__file__).resolve().parents[1]
ASIDE = ("cli", "serve", "adapters", "lab")


def code_version(claim: Claim) -> str:
    """Twelve digits, of the claim's own file, of the package and of torch."""
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
