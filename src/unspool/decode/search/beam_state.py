"""State and options of one beam: its live hypotheses, its pool of finished ones, and its search tree.

Of the candidates of a step, best first: those that end among the first `width` enter the pool, which ranks
them by s(Σ, |y|) + coverage; the first `width` that do not end stay live. Candidates beyond the first
`width` replace those that end. The pool keeps its best; of equal scores the earlier one stays.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypedDict, Unpack

from unspool.arguments import Checked, function_of, integer, number, set_fields, shown
from unspool.config import unknown
from unspool.decode.hypothesis import Hypothesis, Job, Ranked
from unspool.decode.ranking import BeamStatus, Coverage, LengthPenalty, Proved, Stop, Sum
from unspool.decode.search.candidates import Candidate
from unspool.decode.search.sampling import bind_transforms, check_transforms
from unspool.interfaces import FinishReason, StepModel, Transform


@dataclass(frozen=True)
class BeamOptions(Checked):
    """Options of all beam searches; `Beam` describes them."""

    width: int = integer(at_least=1, advice="1 is greedy search, 4 to 10 are usual.")
    transforms: tuple[Transform, ...] = ()
    length_penalty: LengthPenalty = Sum()  # noqa: RUF009 — frozen
    coverage: Coverage | None = None
    patience: float = number(1.0, above=0, at_most=1000, advice="1 is ordinary beam search.")
    stop: Stop = Proved()  # noqa: RUF009 — frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        check_transforms("a beam search", self.transforms)
        if not function_of(self.length_penalty, 2) or not isinstance(self.length_penalty(-1.0, 2), Real):
            raise TypeError(
                f"length_penalty is {shown(self.length_penalty)}, but must return a score of (sum, length). "
                "Give Sum(), Length(1.0) or GNMT(0.6)."
            )
        if not function_of(self.stop, 1):
            raise TypeError(f"stop is {shown(self.stop)}. Give an object such as Proved() or FirstFull().")
        if not isinstance(self.coverage, Coverage | None):
            raise TypeError(f"coverage is {shown(self.coverage)}. Give Coverage(0.2), or None.")

    def shown_name(self, field: str) -> str:
        return field  # an option of Beam and others, which the caller writes

    @property
    def pool_size(self) -> int:
        # 1e-9 allows for rounding: 1.1 · 10 is 11.000000000000002.
        return max(1, math.ceil(self.patience * self.width - 1e-9))

    def bind(self, model: StepModel, job: Job) -> BeamOptions:
        """Bind the transforms to one model and job; refuse n larger than the beam keeps."""
        if job.n > min(self.width, self.pool_size):
            raise ValueError(
                f"n={job.n} is more than the beam keeps, {min(self.width, self.pool_size)} "
                f"(width {self.width}, patience {self.patience}): reduce n or increase the width"
            )
        return replace(self, transforms=bind_transforms(self.transforms, model, job))

    def candidates(self, eos: int) -> int:
        """Number of continuations to consider so that enough remain if `eos` kinds of them end."""
        # Width 1 considers one candidate, so that it is greedy search.
        return 1 if self.width == 1 else max(2, 1 + eos) * self.width

    def arguments(self) -> Iterator[str]:
        yield from map(repr, self.transforms)
        for field in fields(self)[2:]:
            if getattr(self, field.name) != field.default:
                yield f"{field.name}={getattr(self, field.name)!r}"


class BeamKeywords(TypedDict, total=False):
    """Keywords of a beam search besides width and transforms; see `BeamOptions`."""

    length_penalty: LengthPenalty
    coverage: Coverage | None
    patience: float
    stop: Stop


@dataclass(frozen=True, init=False, repr=False)
class BeamSearch:
    """Base class of beam searches: a decoder that keeps several hypotheses and ranks those that end."""

    options: BeamOptions

    def __init__(self, width: int, *transforms: Transform, **keywords: Unpack[BeamKeywords]) -> None:
        known = BeamKeywords.__annotations__
        for name in keywords.keys() - known:
            raise TypeError(unknown(name, known, f"option of {type(self).__name__}"))
        set_fields(self, options=BeamOptions(width, transforms, **keywords))

    def __repr__(self) -> str:
        own = [repr(getattr(self, field.name)) for field in fields(self)[1:]]
        return f"{type(self).__name__}({', '.join([repr(self.width), *own, *self.options.arguments()])})"

    @property
    def width(self) -> int:
        return self.options.width

    def with_width(self, width: int) -> Self:
        other = copy(self)
        set_fields(other, options=replace(self.options, width=width))
        return other

    streams: ClassVar[bool] = False


Status = Literal["grown", "dropped", "open"] | FinishReason


class Node(NamedTuple):
    """One kept hypothesis of a beam: its last token, and the node that it continues."""

    parent: int
    """Index of the node that it continues; −1 for a first token."""
    token: int
    logp: float
    """log p of the token by the model, before any transform."""
    score: float
    """Sum of the scores up to this token, which the beam compared."""
    status: Status
    """grown: it was continued; dropped: better ones replaced it; open: it was live when the search stopped;
    otherwise its finish_reason."""


class Tree:
    """The search tree: one node for every hypothesis that the beam kept."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, float, float, FinishReason | None]] = []

    def add(self, parent: int, token: int, logp: float, score: float, finish: FinishReason | None) -> int:
        self._nodes.append((parent, token, logp, score, finish))
        return len(self._nodes) - 1

    def nodes(self, alive: Iterable[int] = ()) -> tuple[Node, ...]:
        """All nodes with their status; `alive` are the nodes that were live at the end."""
        grown = {parent for parent, *_ in self._nodes}
        alive = set(alive)

        def status(place: int, finish: FinishReason | None) -> Status:
            return finish or ("grown" if place in grown else "open" if place in alive else "dropped")

        return tuple(
            Node(parent, token, logp, score, status(place, finish))
            for place, (parent, token, logp, score, finish) in enumerate(self._nodes)
        )


@dataclass(frozen=True, slots=True)
class BeamItem:
    """A live hypothesis of a beam."""

    hypothesis: Hypothesis
    total: float
    """Sum of its scores."""
    row: int
    """The row of the step that it continues."""
    node: int = -1


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished hypothesis in the pool."""

    hypothesis: Hypothesis
    score: float
    missing: int = 0
    """Number of required phrases that it lacks; compared before the score."""

    @property
    def rank_key(self) -> tuple[int, float]:
        """Smaller is better."""
        return self.missing, -self.score


class BeamState:
    """One beam of one request."""

    def __init__(self, options: BeamOptions, job: Job, request: int, tree: Tree | None = None) -> None:
        self.options, self.job, self.request, self.tree = options, job, request, tree or Tree()
        self.live = [BeamItem(job.hypothesis(request, 0), 0.0, request)]
        self.first_row = request
        """Index of its first row in the current step."""
        self.ranked: Sequence[Ranked | None] = ()
        """The most probable tokens of its rows if the job asks for alternatives."""
        self.unfinished: list[BeamItem] = []
        """The hypotheses that were live when the beam stopped."""
        self.pool: list[Ended] = []
        self.closed = False
        """Whether the pool is final; the live hypotheses may still grow for other beams of the request."""

    @property
    def candidates(self) -> int:
        return self.options.candidates(self.job.ends)

    @property
    def totals(self) -> list[float]:
        return [item.total for item in self.live]

    def take(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Move finished candidates to the pool and keep the others live; return those that were kept.

        Candidates are sorted, best first.
        """
        live: list[BeamItem] = []
        taken = []
        for place, candidate in enumerate(candidates):
            if len(live) == self.options.width <= place:
                break
            hypothesis = self.extend(candidate)
            if hypothesis.finish_reason is None and len(live) < self.options.width:
                live.append(self.live_item(hypothesis, candidate))
            elif hypothesis.finish_reason is not None and place < self.options.width:
                self.end(hypothesis, candidate)
            else:
                continue
            taken.append(candidate)
        self.live = live
        return taken

    def extend(self, candidate: Candidate) -> Hypothesis:
        parent = self.live[candidate.parent].hypothesis
        ranked = self.ranked[candidate.parent] if self.ranked else None
        return parent.extend(candidate.token, candidate.logp, candidate.score, self.job, ranked)

    def live_item(self, hypothesis: Hypothesis, candidate: Candidate) -> BeamItem:
        row = self.first_row + candidate.parent
        return BeamItem(hypothesis, candidate.total, row, self._add_node(hypothesis, candidate))

    def end(self, hypothesis: Hypothesis, candidate: Candidate, missing: int = 0, **notes: Any) -> None:
        """Add a finished candidate to the pool, and drop the worst if the pool is too large.

        Of equal texts (a stop string may shorten two hypotheses to one) the better one stays.
        """
        self._add_node(hypothesis, candidate)
        if self.closed:
            return
        score = self.final_score(hypothesis, candidate)
        ended = Ended(replace(hypothesis, total=score, notes={**hypothesis.notes, **notes}), score, missing)
        duplicate = next(
            (ended for ended in self.pool if text_key(ended.hypothesis) == text_key(hypothesis)), None
        )
        if duplicate is not None:
            if duplicate.rank_key <= ended.rank_key:
                return
            self.pool.remove(duplicate)
        insort(self.pool, ended, key=lambda one: one.rank_key)
        del self.pool[self.options.pool_size :]

    def final_score(self, hypothesis: Hypothesis, candidate: Candidate) -> float:
        return self.options.length_penalty(candidate.total, len(hypothesis.tokens)) + candidate.covered

    def close_if_done(self, rising: bool) -> None:
        if self.live and not self.closed and len(self.pool) == self.options.pool_size:
            status = BeamStatus(
                worst=self.pool[-1].score,
                total=max(self.totals),
                length=len(self.live[0].hypothesis.tokens),
                limit=self.job.limits[self.request],
                penalty=self.options.length_penalty,
                rising=rising,
            )
            self.closed = self.options.stop(status)

    def stop_growing(self) -> None:
        """Stop the beam; its live hypotheses become `unfinished`."""
        self.unfinished, self.live = self.live, []

    def _add_node(self, hypothesis: Hypothesis, candidate: Candidate) -> int:
        parent = self.live[candidate.parent].node
        return self.tree.add(
            parent, candidate.token, candidate.logp, candidate.total, hypothesis.finish_reason
        )


def stop_finished_beams(beams: Sequence[BeamState], rising: bool) -> None:
    """Stop the finished beams of a request, from the last to the first.

    In diverse beam search, the choices of a group change the scores of later groups. So a finished beam
    continues, with its pool closed, until all later beams have stopped.
    """
    for beam in beams:
        beam.close_if_done(rising)
    for beam in reversed(beams):
        if beam.live and not beam.closed:
            return
        beam.stop_growing()


def text_key(hypothesis: Hypothesis) -> str | tuple[int, ...]:
    """The identity of a text: the string, or the tokens without a tokenizer."""
    return hypothesis.tokens if hypothesis.detokenizer is None else hypothesis.detokenizer.close()


def best_texts(beams: Sequence[BeamState], n: int) -> list[Hypothesis]:
    """The n best texts of a request: the best of every beam first, then the second best, and so on.

    A text that several beams found is returned once.
    """
    ranked = sorted(
        (rank, *ended.rank_key, number, ended.hypothesis)
        for number, beam in enumerate(beams)
        for rank, ended in enumerate(beam.pool)
    )
    if not ranked:
        raise ValueError(
            f"request {beams[0].request}: the transforms cut every next token. "
            "A transform must leave at least one token of every row."
        )
    tree = beams[0].tree.nodes(item.node for beam in beams for item in beam.unfinished)
    different: dict[str | tuple[int, ...], Hypothesis] = {}
    for *_, hypothesis in ranked:
        different.setdefault(text_key(hypothesis), hypothesis)
    hypotheses = [
        replace(hypothesis, sample=rank) for rank, hypothesis in enumerate(list(different.values())[:n])
    ]
    return [replace(hypotheses[0], notes={**hypotheses[0].notes, "tree": tree}), *hypotheses[1:]]
