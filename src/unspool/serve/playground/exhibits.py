"""What a server shows besides its models, where it was told to: texts to rate, and what the lab has found."""

from __future__ import annotations

from dataclasses import dataclass

from unspool.evaluate.rating import RatingSet
from unspool.lab.findings import Finding


@dataclass(frozen=True)
class Exhibits:
    """Nothing, unless it is given."""

    ratings: RatingSet | None = None
    findings: tuple[Finding, ...] = ()


NOTHING = Exhibits()
