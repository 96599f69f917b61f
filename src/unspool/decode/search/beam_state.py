"""One beam at work: hypotheses compete for its places, and those that end for a place in its pool.

Of the candidates of a step, best first: those that end among the first `width` enter the pool, where they
are ranked by s(Σ, |y|) + coverage; the first `width` that do not end live on. Candidates beyond the first
`width` stand by so that ends do not starve the beam. The pool keeps its best; of equal scores the one that
ended earlier stays.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from unspool.decode.job import Job
from unspool.decode.path import Path, Ranked
from unspool.decode.ranking.stop import Standing
from unspool.decode.search.beam_options import BeamOptions
from unspool.decode.search.candidates import Candidate
from unspool.decode.search.tree import Tree


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A path in a beam."""

    path: Path
    total: float
    """Sum of its scores."""
    row: int
    """Which row of the step it grew from."""
    node: int = -1
    """Its place in the tree."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A path in a pool."""

    path: Path
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
        self.live = [Hypothesis(job.path(request, 0), 0.0, request)]
        self.first_row = request
        """Where its rows begin in the step that it reads."""
        self.ranked: list[Ranked] = []
        """The most probable tokens of its rows, where the job asks for them."""
        self.left: list[Hypothesis] = []
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
        live: list[Hypothesis] = []
        taken = []
        for place, candidate in enumerate(candidates):
            if len(live) == self.options.width <= place:
                break
            path = self.extended(candidate)
            if path.finish is None and len(live) < self.options.width:
                live.append(self.grown(path, candidate))
            elif path.finish is not None and place < self.options.width:
                self.end(path, candidate)
            else:
                continue
            taken.append(candidate)
        self.live = live
        return taken

    def extended(self, candidate: Candidate) -> Path:
        """The path that a candidate stands for."""
        parent = self.live[candidate.parent].path
        ranked = self.ranked[candidate.parent] if self.ranked else None
        return parent.extend(candidate.token, candidate.logp, candidate.score, self.job, ranked)

    def grown(self, path: Path, candidate: Candidate) -> Hypothesis:
        """A candidate that lives on."""
        row = self.first_row + candidate.parent
        return Hypothesis(path, candidate.total, row, self._noted(path, candidate))

    def end(self, path: Path, candidate: Candidate, missing: int = 0, **notes: Any) -> None:
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

    def worth(self, path: Path, candidate: Candidate) -> float:
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

    def _noted(self, path: Path, candidate: Candidate) -> int:
        parent = self.live[candidate.parent].node
        return self.tree.add(parent, candidate.token, candidate.logp, candidate.total, path.finish)


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


def said(path: Path) -> str | tuple[int, ...]:
    """By what two hypotheses are told apart: their texts, or their tokens where the model has no text."""
    return path.tokens if path.watch is None else path.watch.close()


def answers(beams: Sequence[BeamState], n: int) -> list[Path]:
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
    different: dict[str | tuple[int, ...], Path] = {}
    for *_, path in ranked:
        different.setdefault(said(path), path)
    paths = [replace(path, sample=rank) for rank, path in enumerate(list(different.values())[:n])]
    return [replace(paths[0], notes={**paths[0].notes, "tree": tree}), *paths[1:]]
