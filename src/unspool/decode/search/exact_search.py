"""Exact search: the n most probable texts, found by depth-first search with bounds.

    γ = the n-th best score of a finished text so far
    drop a prefix with sum σ and length ℓ  ⇔  max_{ℓ < m ≤ L} s(σ, m) ≤ γ

Log-probabilities are at most 0, so a sum only falls; a length penalty s is monotone in the length, so that
its maximum is at one of the two ends: ℓ + 1, or L, the limit of new tokens. When no prefix remains, the n
best texts are proved optimal. End tokens are tried first: if n is 1, the first γ is that of the empty text.
Stahlberg & Byrne 2019, §2 and algorithm 1; §4 for the bound with a length penalty.
papers.bib: stahlberg2019nmt

Differs from them: the best `width` prefixes of a level are read at once, and the others wait until all longer
ones are done. The first descent is a beam search of this width; later ones correct it, as in the beam-stack
search of Zhou & Hansen 2005 (papers.bib: zhou2005beam).

The notes of the best text: `optimal` is True if the result is proved. No text has a score above `bound`; if
the result is proved, this is the best text's own score. `read` counts the tokens that the model has read;
prefixes that waited are read again. A search that has read `budget` tokens returns the best texts found so
far, and continues only while there are none. Memory: at most `budget` waiting prefixes for each of L levels.
Of equally probable texts the first one found is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import as_int, set_fields
from unspool.decode.hypothesis import Job, Ranked, SearchStep
from unspool.decode.ranking import LengthPenalty, Sum
from unspool.decode.search.beam import token_scores
from unspool.decode.search.beam_state import BeamItem, BeamOptions, BeamSearch, BeamState, best_texts
from unspool.decode.search.candidates import Candidate, alternatives, highest
from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Step, StepModel, Transform

SUM = Sum()


@dataclass(frozen=True, init=False, repr=False)
class ExactSearch(BeamSearch):
    """ExactSearch(): the most probable text, with a proof if the budget suffices.

    width: prefixes that are read at once; it changes the time, not a proved result.
    budget: tokens that the model may read for one prompt.
    transforms: reshape the scores first.
    length_penalty: ranks finished texts: Sum() (the default), Length(1.0) or GNMT(0.6).

    Models with scores above 0 (contrastive decoding) are refused, because their sums have no bound.
    """

    budget: int

    def __init__(
        self,
        width: int = 32,
        budget: int = 20_000,
        *transforms: Transform,
        length_penalty: LengthPenalty = SUM,
    ) -> None:
        super().__init__(width, *transforms, length_penalty=length_penalty)
        advice = "Every prefix costs a token, and its length if the search returns to it."
        set_fields(self, budget=as_int("ExactSearch.budget", budget, at_least=1, advice=advice))

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        options = self.options.bind(model, job)
        for request in range(len(job.prompts)):
            search = _Search(options, job, request)
            yield from search.run(model, self.budget)
            best, *others = best_texts([search], job.n)
            yield SearchStep((), (replace(best, notes={**best.notes, **search.stats}), *others))


@dataclass
class _Level:
    """Prefixes of one length, and their continuations, best first."""

    live: list[BeamItem]
    ranked: Sequence[Ranked | None]
    fields_C5: Tensor
    """Parent, token, log p, score and sum of every continuation."""
    next: int = 0
    """The first continuation that waits."""

    @property
    def length(self) -> int:
        return len(self.live[0].hypothesis.tokens)


class _Search(BeamState):
    """The search for one prompt; `live` are the prefixes of the current level."""

    def __init__(self, options: BeamOptions, job: Job, request: int) -> None:
        super().__init__(options, job, request)
        self.first_row = 0
        self.levels: list[_Level] = []
        self.dropped = -math.inf
        """The largest bound of a continuation that was not kept."""
        self.read = 0

    def run(self, model: StepModel, budget: int) -> Iterator[SearchStep]:
        """Search until nothing can win, or until a text is found and the budget is spent."""
        prompt = [self.job.prompts[self.request]]
        step, state = model.start(prompt)
        self.read = 1
        while True:
            newest = self._expand(step, budget)
            self.levels.append(newest)
            chosen: list[BeamItem] = []
            while self.levels and not chosen:
                if self.read >= budget and self.pool:
                    return
                chosen = self._choose(self.levels[-1])
                if not chosen:
                    self.levels.pop()
            if not chosen:
                return
            if self.levels[-1] is newest:
                rows, unread = [item.row for item in chosen], 1
            else:
                step, state = model.start(prompt)
                rows, unread = [0] * len(chosen), len(chosen[0].hypothesis.tokens)
            device = step.logp_NV.device
            state = state.select(torch.tensor(rows, device=device))
            for place in range(-unread, 0):
                tokens = [item.hypothesis.tokens[place] for item in chosen]
                step, state = model.step(state, torch.tensor(tokens, device=device))
            self.read += unread * len(chosen)
            self.live = chosen
            yield SearchStep(tuple(item.hypothesis for item in chosen))

    @property
    def stats(self) -> dict[str, Any]:
        """Whether the best texts are proved, and the bound of what was not searched."""
        waiting = [
            self._bound(float(level.fields_C5[level.next, 4]), level.length)
            for level in self.levels
            if level.next < len(level.fields_C5)
        ]
        open_ = max(self.dropped, *waiting, -math.inf)
        return {"optimal": open_ <= self._worst, "bound": max(self.pool[0].score, open_), "read": self.read}

    @property
    def _worst(self) -> float:
        """γ."""
        return self.pool[self.job.n - 1].score if len(self.pool) >= self.job.n else -math.inf

    def _bound(self, total: float, length: int) -> float:
        """The best score of a text that continues a prefix of this length by a token to this sum."""
        at = self.options.length_penalty
        return max(at(total, length + 1), at(total, self.job.limits[self.request]))

    def _least_sum(self, length: int) -> float:
        """A sum (by bisection, slightly too small) that a continuation must exceed to win."""
        worst, low, high = self._worst, -1.0, 0.0
        if worst == -math.inf:
            return worst
        while self._bound(low, length) > worst:
            low *= 2
            if low < -1e300:
                return -math.inf
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self._bound(middle, length) > worst else (middle, high)
        return low

    def _expand(self, step: Step, budget: int) -> _Level:
        """Try the end tokens of the live prefixes; the other continuations that can win wait."""
        if step.score_NV is not None:
            raise ValueError(
                "ExactSearch needs scores of at most 0, but this model's are differences of "
                "log-probabilities, which may be positive: use Beam"
            )
        live = self.live
        scores_NV = token_scores(step, [item.hypothesis for item in live], self.options.transforms)
        peaks(scores_NV)  # refuses NaN
        self.ranked = alternatives(step.logp_NV, scores_NV, self.job.alternatives)
        totals_NV = scores_NV.double() + scores_NV.new_tensor(self.totals, dtype=torch.float64)[:, None]
        length = len(live[0].hypothesis.tokens)
        ends, tables = sorted(self.job.eos | self.job.stop_ids), (step.logp_NV, scores_NV, totals_NV)
        for row in range(len(live)):
            for token in ends:
                candidate = _candidate(row, token, *(float(rows[row, token]) for rows in tables))
                if candidate.total > -math.inf:
                    self.end(self.extend(candidate), candidate)
        totals_NV[:, ends] = -math.inf
        flat_C = (totals_NV.flatten() > self._least_sum(length)).nonzero()[:, 0]
        total_C = totals_NV.flatten()[flat_C]
        kept = min(budget, len(flat_C))
        if not kept:
            return _Level(live, self.ranked, totals_NV.new_zeros(0, 5))
        if kept < len(flat_C):
            (best_K,) = highest(total_C[None], kept + 1)[0].tolist()
            self.dropped = max(self.dropped, self._bound(best_K[-1], length))
        order_K = highest(total_C[None], kept)[1][0]
        flat_K = flat_C[order_K]
        vocabulary = scores_NV.shape[1]
        columns = (flat_K // vocabulary, flat_K % vocabulary, *(rows.flatten()[flat_K] for rows in tables))
        return _Level(live, self.ranked, torch.stack([column.double() for column in columns], dim=-1))

    def _choose(self, level: _Level) -> list[BeamItem]:
        """Take the next continuations of a level; those that end enter the pool."""
        self.live, self.ranked = level.live, level.ranked
        chosen: list[BeamItem] = []
        most = self.options.width
        while level.next < len(level.fields_C5) and len(chosen) < most:
            for fields in level.fields_C5[level.next : level.next + most - len(chosen)].tolist():
                candidate = _candidate(int(fields[0]), int(fields[1]), *fields[2:])
                if self._bound(candidate.total, level.length) <= self._worst:
                    level.next = len(level.fields_C5)
                    break
                level.next += 1
                hypothesis = self.extend(candidate)
                if hypothesis.finish_reason is None:
                    chosen.append(self.live_item(hypothesis, candidate))
                else:
                    self.end(hypothesis, candidate)
        return chosen


def _candidate(parent: int, token: int, logp: float, score: float, total: float) -> Candidate:
    return Candidate(parent, token, logp, score, total, 0.0, total)
