"""What all ranking searches are told alike: how wide, which transforms, how hypotheses are ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from unspool.decode.ranking.coverage import Coverage
from unspool.decode.ranking.stop import LengthPenalty, Proved, Stop
from unspool.decode.ranking.sum import Sum
from unspool.decode.transforms.arguments import number, whole
from unspool.protocols import Job, Pick, Transform


@dataclass(frozen=True)
class Rules:
    """Checked once, when a search is made."""

    width: int
    """Hypotheses kept alive at every step."""
    transforms: tuple[Transform, ...] = ()
    """Reshape the scores before they are ranked."""
    length_penalty: LengthPenalty = Sum()  # noqa: RUF009 — frozen
    """What an ended hypothesis is worth."""
    coverage: Coverage | None = None
    """What it pays for source tokens not looked at."""
    patience: float = 1.0
    """The pool holds ⌈patience · width⌉ ended hypotheses before stopping is considered."""
    stop: Stop = Proved()  # noqa: RUF009 — frozen
    """When a full pool ends the search."""

    def __post_init__(self) -> None:
        whole("width", self.width, at_least=1, advice="1 is greedy search, 4 to 10 are usual.")
        number("patience", self.patience, above=0, at_most=1000, advice="1 is ordinary beam search.")
        for rule in self.transforms:
            if isinstance(rule, (type, Pick)) or not callable(rule):
                raise TypeError(
                    f"{rule!r} cannot stand among the transforms of a search that ranks and does not pick. "
                    "Give transforms such as NoRepeatNgram(3)."
                )
        for name, needed in (("length_penalty", "Sum(), Length(1.0) or GNMT(0.6)"), ("stop", "Proved()")):
            if isinstance(getattr(self, name), type) or not callable(getattr(self, name)):
                raise TypeError(f"{name} is {getattr(self, name)!r}. Give an object such as {needed}.")
        if not isinstance(self.coverage, Coverage | None):
            raise TypeError(f"coverage is {self.coverage!r}. Give Coverage(0.2), or None.")

    @property
    def room(self) -> int:
        """How many ended hypotheses are kept."""
        # The hair's breadth forgives what floating point adds: 1.1 · 10 is 11.000000000000002.
        return max(1, math.ceil(self.patience * self.width - 1e-9))

    def check(self, job: Job) -> None:
        """Refuse a job that asks for more hypotheses than are kept."""
        if job.n > min(self.width, self.room):
            raise ValueError(
                f"n={job.n} texts were asked of a search that keeps {min(self.width, self.room)} "
                f"(width {self.width}, patience {self.patience}). Ask for fewer, or choose a larger width."
            )

    def candidates(self, eos: int) -> int:
        """How many continuations are looked at, so that enough are left when `eos` kinds of them end."""
        # A beam of one looks at one: it is greedy search, whatever ranks the hypotheses.
        return 1 if self.width == 1 else max(2, 1 + eos) * self.width

    def arguments(self) -> Iterator[str]:
        """As they were written: what differs from the defaults, after the width."""
        yield from map(repr, self.transforms)
        for field in fields(self)[2:]:
            if getattr(self, field.name) != field.default:
                yield f"{field.name}={getattr(self, field.name)!r}"
