"""What all ranking searches are told alike: how wide, which transforms, how hypotheses are ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TypedDict, Unpack

from unspool.decode.arguments import as_number, as_whole, function_of, keep, shown
from unspool.decode.job import Job
from unspool.decode.ranking.coverage import Coverage
from unspool.decode.ranking.stop import LengthPenalty, Proved, Stop
from unspool.decode.ranking.sum import Sum
from unspool.decode.search.reshape import check_transforms, prepared
from unspool.protocols import StepModel, Transform


@dataclass(frozen=True)
class BeamOptions:
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
        advice = "1 is greedy search, 4 to 10 are usual."
        keep(self, width=as_whole("width", self.width, at_least=1, advice=advice))
        advice = "1 is ordinary beam search."
        keep(self, patience=as_number("patience", self.patience, above=0, at_most=1000, advice=advice))
        check_transforms("a search that ranks", self.transforms)
        if not function_of(self.length_penalty, 2) or not isinstance(self.length_penalty(-1.0, 2), Real):
            raise TypeError(
                f"length_penalty is {shown(self.length_penalty)}, which makes no score of sum and length. "
                "Give Sum(), Length(1.0) or GNMT(0.6)."
            )
        if not function_of(self.stop, 1):
            raise TypeError(f"stop is {shown(self.stop)}. Give an object such as Proved() or FirstFull().")
        if not isinstance(self.coverage, Coverage | None):
            raise TypeError(f"coverage is {shown(self.coverage)}. Give Coverage(0.2), or None.")

    @property
    def pool_size(self) -> int:
        """How many ended hypotheses are kept."""
        # The hair's breadth forgives what floating point adds: 1.1 · 10 is 11.000000000000002.
        return max(1, math.ceil(self.patience * self.width - 1e-9))

    def prepared(self, model: StepModel, job: Job) -> BeamOptions:
        """For one job: its transforms know the model and the job. Refuses to find more than is kept."""
        if job.n > min(self.width, self.pool_size):
            raise ValueError(
                f"n={job.n} texts were asked of a search that keeps {min(self.width, self.pool_size)} "
                f"(width {self.width}, patience {self.patience}). Ask for fewer, or choose a larger width."
            )
        return replace(self, transforms=prepared(self.transforms, model, job))

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


class BeamKeywords(TypedDict, total=False):
    """What a beam may be told besides its width and transforms; see `BeamOptions`."""

    length_penalty: LengthPenalty
    coverage: Coverage | None
    patience: float
    stop: Stop


@dataclass(frozen=True, init=False, repr=False)
class BeamSearch:
    """A search that keeps several hypotheses and ranks those that end: what all beams have in common."""

    options: BeamOptions

    def __init__(self, width: int, *transforms: Transform, **keywords: Unpack[BeamKeywords]) -> None:
        unknown = [name for name in keywords if name not in BeamKeywords.__annotations__]
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no option {unknown[0]!r}. "
                f"Choose from {', '.join(BeamKeywords.__annotations__)}."
            )
        object.__setattr__(self, "options", BeamOptions(width, transforms, **keywords))

    def __repr__(self) -> str:
        own = [repr(getattr(self, field.name)) for field in fields(self)[1:]]
        return f"{type(self).__name__}({', '.join([repr(self.width), *own, *self.options.arguments()])})"

    @property
    def width(self) -> int:
        """Hypotheses kept alive at every step."""
        return self.options.width

    @property
    def streams(self) -> bool:
        """A token may still be given up for a better one."""
        return False
