"""Speculative decoding: a small model drafts several tokens, the large one checks them in a single pass.

    x ~ q,  accepted with probability min(1, p(x)/q(x));  at the first refusal  x ~ max(0, p − q), normalised

Leviathan et al. 2023, §2.3 and algorithm 1 (papers.bib: leviathan2023fast); Chen et al. 2023, algorithm 2
(papers.bib: chen2023accelerating). p is the large model's distribution and q the draft's, both reshaped by
the transforms; γ is `length`. What comes out has exactly the distribution p, whatever the draft says: the
draft decides only how many tokens a round yields, one to γ + 1. With ArgMax() as the pick p and q are certain
of their best token, and the text is that of greedy search. The same seed draws other texts than Sample does:
only their distribution is the same.

A path's notes count the tokens `proposed` and `accepted`, and the `rounds`, each of which is one pass of the
large model. Rows are decoded one by one, since each accepts a different number of tokens. What is drafted is
neither shown nor judged (loops, stop strings) before it has been accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import as_whole, set_fields
from unspool.decode.combine.lockstep import check_model, check_parts
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.multinomial import Multinomial, invert
from unspool.decode.picks import ArgMax
from unspool.decode.prompts import tokens_left
from unspool.decode.search.candidates import alternatives
from unspool.decode.search.sampling import Sample, prepared, reshape
from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Pick, Step, StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class Speculative:
    """Speculative(draft, Temperature(0.8), length=4): texts of the same distribution as those of
    Sample(Temperature(0.8)), sooner; not the same texts for the same seed. With ArgMax(), Greedy's text."""

    draft: StepModel
    sample: Sample
    length: int

    def __init__(self, draft: StepModel, *rules: Transform | Pick, length: int = 4) -> None:
        advice = "It is the number of drafted tokens, 4 as a rule."
        _check_rewindable(draft, "the draft")
        sample = Sample(*rules)
        if type(sample.pick) not in LAWS:
            raise TypeError(
                f"{sample.pick!r} cannot be checked by speculative decoding, which must know how probably a "
                f"pick draws each token: choose from {', '.join(pick.__name__ for pick in LAWS)}"
            )
        length = as_whole("Speculative.length", length, at_least=1, advice=advice)
        set_fields(self, draft=draft, sample=sample, length=length)

    def __repr__(self) -> str:
        rules = repr(self.sample).removeprefix("Sample(").removesuffix(")")
        return f"Speculative({', '.join(filter(None, (repr(self.draft), rules)))}, length={self.length})"

    @property
    def streams(self) -> bool:
        """An accepted token stays."""
        return True

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield a frontier for each round, in which every path grows by one to length + 1 tokens."""
        _check_rewindable(model, "the model")
        check_parts((model, self.draft))
        for prompt, limit in zip(job.prompts, job.limits, strict=True):
            free = tokens_left(self.draft, prompt)
            if free is not None and limit > free:
                raise ValueError(
                    f"the draft's context holds {self.draft.context} tokens, but a prompt of {len(prompt)} "
                    f"may be followed by {limit}: lower max_new_tokens, or take a draft with a longer context"
                )
        return self._rounds(model, job, prepared(self.sample.transforms, model, job))

    def _rounds(self, model: StepModel, job: Job, rules: tuple[Transform, ...]) -> Iterator[SearchStep]:
        law = Law(rules, LAWS[type(self.sample.pick)])
        begun = [(Beginning(model, prompt), Beginning(self.draft, prompt)) for prompt in job.prompts]
        for paths in job.batches():
            rows = [
                DraftedRow(
                    replace(path, notes={"proposed": 0, "accepted": 0, "rounds": 0}),
                    job.rng(path),
                    *(Reading(beginning) for beginning in begun[path.request]),
                )
                for path in paths
            ]
            yield from self._run(rows, job, law)

    def _run(self, rows: list[DraftedRow], job: Job, law: Law) -> Iterator[SearchStep]:
        while rows:
            for row in rows:
                self._advance(row, job, law)
            live = [row for row in rows if row.path.finish_reason is None]
            yield SearchStep(
                tuple(row.path for row in live),
                tuple(row.path for row in rows if row.path.finish_reason is not None),
            )
            rows = live

    def _advance(self, row: DraftedRow, job: Job, law: Law) -> None:
        """One round: draft, check, and draw the one token more that the check gives for nothing."""
        guesses = self._guess(row, job, law)
        steps = row.model.after(row.path.tokens, [guess.token for guess in guesses])
        path, accepted = row.path, 0
        for guess, step in zip((*guesses, None), steps, strict=True):
            scores_1V, p_1V = law(step, path)
            right = guess is not None and row.rng.random() * guess.q_1V[0, guess.token] < p_1V[0, guess.token]
            token = guess.token if guess is not None and right else _redraw(p_1V, guess, row.rng)
            path = _extended(path, token, step, scores_1V, job)
            accepted += bool(right)
            if not right or path.finish_reason is not None:
                break
        row.model.forget(len(path.tokens) - 1)
        row.draft.forget(len(path.tokens) - 1)
        counts = {"proposed": len(guesses), "accepted": accepted, "rounds": 1}
        added = {name: path.notes[name] + count for name, count in counts.items()}
        row.path = replace(path, notes={**path.notes, **added})

    def _guess(self, row: DraftedRow, job: Job, law: Law) -> list[Guess]:
        """What the draft would say next, with the distributions that it was drawn from."""
        # Stop strings and loops are left to the check: only what stays is decoded, judged, and only once.
        path, drafting = (
            replace(row.path, detokenizer=None),
            replace(job, stop_condition=None, alternatives=0),
        )
        room = min(self.length, job.limits[path.request] - len(path.tokens) - 1)
        guesses: list[Guess] = []
        while len(guesses) < room and path.finish_reason is None:
            (step,) = row.draft.after(path.tokens, ())
            scores_1V, q_1V = law(step, path)
            token = _draw(q_1V, row.rng)
            guesses.append(Guess(token, q_1V))
            path = _extended(path, token, step, scores_1V, drafting)
        return guesses


@dataclass(frozen=True)
class Law:
    """How probably each token is picked after a path."""

    transforms: tuple[Transform, ...]
    picked: Callable[[Tensor], Tensor]

    def __call__(self, step: Step, path: Hypothesis) -> tuple[Tensor, Tensor]:
        """The reshaped scores, and the probability of each token to be picked by them."""
        scores_1V = reshape(step, [path], self.transforms)
        peaks(scores_1V)
        return scores_1V, self.picked(scores_1V)


def _extended(path: Hypothesis, token: int, step: Step, scores_1V: Tensor, job: Job) -> Hypothesis:
    ranked = alternatives(step.logp_NV, scores_1V, job.alternatives)[0] if job.alternatives else None
    return path.extend(token, step.logp_NV[0, token].item(), scores_1V[0, token].item(), job, ranked)


@dataclass(frozen=True)
class Guess:
    """A drafted token and the distribution that it was drawn from."""

    token: int
    q_1V: Tensor


@dataclass
class DraftedRow:
    """A path, its random stream, and what both models have read of it."""

    path: Hypothesis
    rng: Random
    model: Reading
    draft: Reading


class Beginning:
    """A prompt, read when a row that continues it asks: its Step is all rows', a state each one's own."""

    def __init__(self, model: Any, prompt: Sequence[int]) -> None:
        self.model, self._prompt = model, prompt
        self._step: Step | None = None
        self._state: Any = None

    def step(self) -> Step:
        """What the model says after the prompt."""
        if self._step is None:
            self._step, self._state = self.model.start([self._prompt])
        return self._step

    def state(self) -> Any:
        """One that nobody has gone on from."""
        found = self.model.start([self._prompt])[1] if self._state is None else self._state
        self._state = None
        return found


class Reading:
    """How far one model has read one row: it catches up with what is new and forgets what was refused."""

    def __init__(self, beginning: Beginning) -> None:
        self._model, self._beginning, self._read = beginning.model, beginning, 0
        self._state: Any = None

    def after(self, row: Sequence[int], more: Sequence[int]) -> list[Step]:
        """1 + len(more) Steps: about what follows the new tokens of the row, and each further one."""
        unread = [*row, *more][self._read :]
        if self._state is None:
            self._last = self._beginning.step()
        known = [self._last] if self._read == len(row) else []
        if unread:
            self._state = self._beginning.state() if self._state is None else self._state
            device = self._last.logp_NV.device
            read, self._state = self._model.extend(self._state, torch.tensor([unread], device=device))
            known += [read.select(torch.tensor([place], device=device)) for place in range(len(unread))]
            self._last, self._read = known[-1], self._read + len(unread)
        return known[-1 - len(more) :]

    def forget(self, length: int) -> None:
        """Go back to the first `length` new tokens, if more were read; `after` must then be given more."""
        if self._read > length:
            self._state = self._model.rewind(self._state, self._read - length)
            self._read = length


def _draw(weight_1V: Tensor, rng: Random) -> int:
    u_1 = torch.tensor([rng.random()], dtype=torch.float64, device=weight_1V.device)
    return int(invert(weight_1V, u_1))


def _redraw(p_1V: Tensor, refused: Guess | None, rng: Random) -> int:
    if refused is None:
        return _draw(p_1V, rng)
    rest_1V = (p_1V - refused.q_1V).clamp(min=0)
    # Two distributions that differ by rounding alone leave nothing over: either of them will do.
    return _draw(rest_1V if bool(rest_1V.any()) else p_1V, rng)


def proportional(scores_NV: Tensor) -> Tensor:
    """Multinomial picks a token with its own probability."""
    return scores_NV.double().softmax(dim=-1)


def certain(scores_NV: Tensor) -> Tensor:
    """ArgMax always picks the best token."""
    return torch.zeros_like(scores_NV, dtype=torch.float64).scatter(
        1, scores_NV.argmax(-1, keepdim=True), 1.0
    )


LAWS: dict[type, Callable[[Tensor], Tensor]] = {Multinomial: proportional, ArgMax: certain}
"""The distribution of the token that a pick draws."""


def _check_rewindable(model: StepModel, role: str) -> None:
    check_model(model)
    if model.rewindable is None:
        raise TypeError(
            f"{role}, {type(model).__name__}, cannot go back over tokens that were refused: speculative "
            "decoding needs a model with `extend` and `rewind`, such as a TransformerLM or a Contrast of two"
        )
