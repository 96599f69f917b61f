"""One beam at work: hypotheses compete for its places, and those that end for a place in its pool.

Of the candidates of a step, best first: those that end among the first `width` enter the pool, where they
are ranked by s(Σ, |y|) + coverage; the first `width` that do not end live on. Candidates beyond the first
`width` stand by so that ends do not starve the beam. The pool keeps its best; of equal scores the one that
ended earlier stays.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

from unspool.decode.arguments import as_number, as_whole, function_of, set_fields, shown
from unspool.decode.hypothesis import Hypothesis, Job, Ranked
from unspool.decode.ranking import Coverage, LengthPenalty, Proved, Standing, Stop, Sum
from unspool.decode.search.candidates import Candidate
from unspool.decode.search.sampling import check_transforms, prepared
from unspool.interfaces import FinishReason, StepModel, Transform

# What all ranking searches are told alike: how wide, which transforms, how hypotheses are ranked.


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
        set_fields(self, width=as_whole("width", self.width, at_least=1, advice=advice))
        advice = "1 is ordinary beam search."
        set_fields(self, patience=as_number("patience", self.patience, above=0, at_most=1000, advice=advice))
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


# What a beam held at every step, as a tree that can be shown.
#
# Each node is a hypothesis that was kept: its last token, and the node it grew from.


Status = Literal["grown", "dropped", "open"] | FinishReason


class Node(NamedTuple):
    """One hypothesis of a beam."""

    parent: int
    """The place of the node it grew from; −1 for a first token."""
    token: int
    logp: float
    """log p of the token by the model itself."""
    score: float
    """Sum of the scores from the first token to this one: what the beam compared."""
    status: Status
    """grown: it was continued; dropped: better ones took its place; open: it was alive when the search
    stopped; else why it ended."""


class Tree:
    """Grows by one node for every hypothesis kept; a beam of width w costs w small tuples a step."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, float, float, FinishReason | None]] = []

    def add(self, parent: int, token: int, logp: float, score: float, finish: FinishReason | None) -> int:
        """The place of the new node."""
        self._nodes.append((parent, token, logp, score, finish))
        return len(self._nodes) - 1

    def nodes(self, alive: Iterable[int] = ()) -> tuple[Node, ...]:
        """Every node with its fate; `alive` are those that the search left standing."""
        grown = {parent for parent, *_ in self._nodes}
        alive = set(alive)

        def fate(place: int, finish: FinishReason | None) -> Status:
            return finish or ("grown" if place in grown else "open" if place in alive else "dropped")

        return tuple(
            Node(parent, token, logp, score, fate(place, finish))
            for place, (parent, token, logp, score, finish) in enumerate(self._nodes)
        )


@dataclass(frozen=True, slots=True)
class BeamItem:
    """A path in a beam."""

    path: Hypothesis
    total: float
    """Sum of its scores."""
    row: int
    """Which row of the step it grew from."""
    node: int = -1
    """Its place in the tree."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A path in a pool."""

    path: Hypothesis
    score: float
    """What it is worth: its path's total."""
    missing: int = 0
    """What it should hold and does not: fewer is better, before any score."""

    @property
    def place(self) -> tuple[int, float]:
        """Smaller is better."""
        return self.missing, -self.score


class BeamState:
    """One beam of one request."""

    def __init__(self, options: BeamOptions, job: Job, request: int, tree: Tree) -> None:
        self.options, self.job, self.request, self.tree = options, job, request, tree
        self.live = [BeamItem(job.path(request, 0), 0.0, request)]
        self.first_row = request
        """Where its rows begin in the step that it reads."""
        self.ranked: list[Ranked] = []
        """The most probable tokens of its rows, where the job asks for them."""
        self.left: list[BeamItem] = []
        """What was alive when the search stopped."""
        self.pool: list[Ended] = []
        self.closed = False
        """Whether nothing may enter the pool any more, though its hypotheses may still grow."""

    @property
    def totals(self) -> list[float]:
        """The sums of the live hypotheses."""
        return [hypothesis.total for hypothesis in self.live]

    def take(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Fill the pool and the beam from candidates in order of merit; return those that found a place."""
        live: list[BeamItem] = []
        taken = []
        for place, candidate in enumerate(candidates):
            if len(live) == self.options.width <= place:
                break
            path = self.extended(candidate)
            if path.finish_reason is None and len(live) < self.options.width:
                live.append(self.grown(path, candidate))
            elif path.finish_reason is not None and place < self.options.width:
                self.end(path, candidate)
            else:
                continue
            taken.append(candidate)
        self.live = live
        return taken

    def extended(self, candidate: Candidate) -> Hypothesis:
        """The path that a candidate stands for."""
        parent = self.live[candidate.parent].path
        ranked = self.ranked[candidate.parent] if self.ranked else None
        return parent.extend(candidate.token, candidate.logp, candidate.score, self.job, ranked)

    def grown(self, path: Hypothesis, candidate: Candidate) -> BeamItem:
        """A candidate that lives on."""
        row = self.first_row + candidate.parent
        return BeamItem(path, candidate.total, row, self._noted(path, candidate))

    def end(self, path: Hypothesis, candidate: Candidate, missing: int = 0, **notes: Any) -> None:
        """A candidate that ended enters the pool; the worst leaves it where it is too full.

        Of equal texts (a stop string may cut two hypotheses down to one) the better one stays.
        """
        self._noted(path, candidate)
        if self.closed:
            return
        score = self.worth(path, candidate)
        ended = Ended(replace(path, total=score, notes={**path.notes, **notes}), score, missing)
        twin = next((one for one in self.pool if said(one.path) == said(path)), None)
        if twin is not None:
            if twin.place <= ended.place:
                return
            self.pool.remove(twin)
        insort(self.pool, ended, key=lambda one: one.place)
        del self.pool[self.options.pool_size :]

    def worth(self, path: Hypothesis, candidate: Candidate) -> float:
        """The score by which an ended hypothesis is ranked."""
        return self.options.length_penalty(candidate.total, len(path.tokens)) + candidate.covered

    def consider(self, rising: bool) -> None:
        """Close the pool, if the options allow it."""
        if self.live and not self.closed and len(self.pool) == self.options.pool_size:
            standing = Standing(
                worst=self.pool[-1].score,
                total=max(self.totals),
                length=len(self.live[0].path.tokens),
                limit=self.job.limits[self.request],
                penalty=self.options.length_penalty,
                rising=rising,
            )
            self.closed = self.options.stop(standing)

    def leave(self) -> None:
        """What is alive lives no longer."""
        self.left, self.live = self.live, []

    def _noted(self, path: Hypothesis, candidate: Candidate) -> int:
        parent = self.live[candidate.parent].node
        return self.tree.add(parent, candidate.token, candidate.logp, candidate.total, path.finish_reason)


def settle(beams: Sequence[BeamState], rising: bool) -> None:
    """Let the beams of a request stop that may, from the last to the first.

    What a beam chooses counts in the scores of those after it (diverse groups), so that it goes on, its pool
    closed, until all of them have stopped.
    """
    for beam in beams:
        beam.consider(rising)
    for beam in reversed(beams):
        if beam.live and not beam.closed:
            return
        beam.leave()


def said(path: Hypothesis) -> str | tuple[int, ...]:
    """By what two hypotheses are told apart: their texts, or their tokens where the model has no text."""
    return path.tokens if path.detokenizer is None else path.detokenizer.close()


def answers(beams: Sequence[BeamState], n: int) -> list[Hypothesis]:
    """The n best texts of a request: the best of every beam first, then the second best, and so on.

    A text that several beams have found comes once.
    """
    ranked = sorted(
        (place, *ended.place, number, ended.path)
        for number, beam in enumerate(beams)
        for place, ended in enumerate(beam.pool)
    )
    if not ranked:
        raise ValueError(
            f"request {beams[0].request}: every next token was cut, so that no text could be made. "
            "A transform must leave at least one token of every row."
        )
    tree = beams[0].tree.nodes(one.node for beam in beams for one in beam.left)
    different: dict[str | tuple[int, ...], Hypothesis] = {}
    for *_, path in ranked:
        different.setdefault(said(path), path)
    paths = [replace(path, sample=rank) for rank, path in enumerate(list(different.values())[:n])]
    return [replace(paths[0], notes={**paths[0].notes, "tree": tree}), *paths[1:]]
