"""Speculative decoding: a small model drafts several tokens, and the large one verifies them in one pass.

    x ~ q,  accepted with probability min(1, p(x)/q(x));  if rejected  x ~ max(0, p − q), normalised

Leviathan et al. 2023, §2.3 and algorithm 1 (papers.bib: leviathan2023fast); Chen et al. 2023, algorithm 2
(papers.bib: chen2023accelerating). p is the large model's distribution and q the draft's, both reshaped by
the transforms; γ is `length`. The texts have exactly the distribution p; the draft only determines how many
tokens a round yields, 1 to γ + 1. With ArgMax() as the pick, the text is that of greedy search. The same seed
gives other texts than Sample; only their distribution is the same.

The notes of a hypothesis count the tokens `proposed` and `accepted`, and the `rounds`, each one pass of the
large model. Rows are decoded one by one, because each accepts a different number of tokens. Stop conditions
and stop strings apply to accepted tokens only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from unspool.decode.arguments import as_int, set_fields
from unspool.decode.combine.lockstep import check_model, check_parts
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep, split_ended
from unspool.decode.multinomial import Multinomial, token_at
from unspool.decode.picks import ArgMax
from unspool.decode.prompts import tokens_left
from unspool.decode.search.candidates import alternatives
from unspool.decode.search.sampling import PromptStart, Sample, bind_transforms, reshape
from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Pick, Step, StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class Speculative:
    """Speculative(draft, Temperature(0.8), length=4): the distribution of Sample(Temperature(0.8)),
    faster."""

    draft: StepModel
    sample: Sample
    length: int

    def __init__(self, draft: StepModel, *rules: Transform | Pick, length: int = 4) -> None:
        advice = "It is the number of drafted tokens, usually 4."
        _check_rewindable(draft, "the draft")
        sample = Sample(*rules)
        if type(sample.pick) not in PICK_DISTRIBUTIONS:
            raise TypeError(
                f"speculative decoding does not support {sample.pick!r}: "
                f"choose from {', '.join(pick.__name__ for pick in PICK_DISTRIBUTIONS)}"
            )
        length = as_int("Speculative.length", length, at_least=1, advice=advice)
        set_fields(self, draft=draft, sample=sample, length=length)

    def __repr__(self) -> str:
        rules = repr(self.sample).removeprefix("Sample(").removesuffix(")")
        return f"Speculative({', '.join(filter(None, (repr(self.draft), rules)))}, length={self.length})"

    streams: ClassVar[bool] = True
    """An accepted token does not change later."""

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        _check_rewindable(model, "the model")
        check_parts((model, self.draft))
        for prompt, limit in zip(job.prompts, job.limits, strict=True):
            free = tokens_left(self.draft, prompt)
            if free is not None and limit > free:
                raise ValueError(
                    f"a prompt of {len(prompt)} tokens and {limit} new ones exceed the draft's context, "
                    f"{self.draft.context}: reduce max_new_tokens, or use a draft with a longer context"
                )
        return self._rounds(model, job, bind_transforms(self.sample.transforms, model, job))

    def _rounds(self, model: StepModel, job: Job, rules: tuple[Transform, ...]) -> Iterator[SearchStep]:
        pick = PICK_DISTRIBUTIONS[type(self.sample.pick)]

        def distribution(step: Step, hypothesis: Hypothesis) -> tuple[Tensor, Tensor]:
            scores_1V = reshape(step, [hypothesis], rules)
            peaks(scores_1V)
            return scores_1V, pick(scores_1V)

        prefills = [
            (PromptStart(model, [prompt]), PromptStart(self.draft, [prompt])) for prompt in job.prompts
        ]
        for hypotheses in job.batches():
            rows = [
                DraftedRow(
                    replace(hypothesis, notes={"proposed": 0, "accepted": 0, "rounds": 0}),
                    job.rng(hypothesis),
                    *(IncrementalReader(prefill) for prefill in prefills[hypothesis.request]),
                )
                for hypothesis in hypotheses
            ]
            while rows:
                for row in rows:
                    self._advance(row, job, distribution)
                yield split_ended([row.hypothesis for row in rows])
                rows = [row for row in rows if row.hypothesis.finish_reason is None]

    def _advance(self, row: DraftedRow, job: Job, distribution: Distribution) -> None:
        """One round: draft, verify, and draw the one further token that the verification gives."""
        drafted = self._draft(row, job, distribution)
        steps = row.model.after(row.hypothesis.tokens, [draft.token for draft in drafted])
        hypothesis, accepted = row.hypothesis, 0
        for draft, step in zip((*drafted, None), steps, strict=True):
            scores_1V, p_1V = distribution(step, hypothesis)
            is_accepted = (
                draft is not None and row.rng.random() * draft.q_1V[0, draft.token] < p_1V[0, draft.token]
            )
            token = draft.token if draft is not None and is_accepted else _redraw(p_1V, draft, row.rng)
            hypothesis = _extended(hypothesis, token, step, scores_1V, job)
            accepted += bool(is_accepted)
            if not is_accepted or hypothesis.finish_reason is not None:
                break
        row.model.forget(len(hypothesis.tokens) - 1)
        row.draft.forget(len(hypothesis.tokens) - 1)
        counts = {"proposed": len(drafted), "accepted": accepted, "rounds": 1}
        added = {name: hypothesis.notes[name] + count for name, count in counts.items()}
        row.hypothesis = replace(hypothesis, notes={**hypothesis.notes, **added})

    def _draft(self, row: DraftedRow, job: Job, distribution: Distribution) -> list[DraftToken]:
        """Draft tokens, with the distributions that they were drawn from."""
        # Stop strings and stop conditions apply to accepted tokens only.
        hypothesis = replace(row.hypothesis, detokenizer=None)
        draft_job = replace(job, stop_condition=None, alternatives=0)
        count = min(self.length, job.limits[hypothesis.request] - len(hypothesis.tokens) - 1)
        drafted: list[DraftToken] = []
        while len(drafted) < count and hypothesis.finish_reason is None:
            (step,) = row.draft.after(hypothesis.tokens, ())
            scores_1V, q_1V = distribution(step, hypothesis)
            token = token_at(q_1V[0], row.rng.random())
            drafted.append(DraftToken(token, q_1V))
            hypothesis = _extended(hypothesis, token, step, scores_1V, draft_job)
        return drafted


Distribution = Callable[[Step, Hypothesis], tuple[Tensor, Tensor]]
"""The reshaped scores after a hypothesis, (1, V), and the probability of each token to be picked."""


def _extended(hypothesis: Hypothesis, token: int, step: Step, scores_1V: Tensor, job: Job) -> Hypothesis:
    ranked = alternatives(step.logp_NV, scores_1V, job.alternatives)[0] if job.alternatives else None
    return hypothesis.extend(token, step.logp_NV[0, token].item(), scores_1V[0, token].item(), job, ranked)


class DraftToken(NamedTuple):
    """A drafted token and its distribution."""

    token: int
    q_1V: Tensor


@dataclass
class DraftedRow:
    """A hypothesis, its random stream, and the reader of each model."""

    hypothesis: Hypothesis
    rng: Random
    model: IncrementalReader
    draft: IncrementalReader


class IncrementalReader:
    """Reads one row with one model: reads new tokens, and rewinds rejected ones."""

    def __init__(self, prefill: PromptStart) -> None:
        self._model: Any = prefill.model
        self._prefill, self._read = prefill, 0
        self._state: Any = None

    def after(self, row: Sequence[int], more: Sequence[int]) -> list[Step]:
        """1 + len(more) Steps: after the row, and after each further token."""
        unread = [*row, *more][self._read :]
        if self._state is None:
            self._last = self._prefill.step
        known = [self._last] if self._read == len(row) else []
        if unread:
            self._state = self._prefill.take_state() if self._state is None else self._state
            device = self._last.logp_NV.device
            read, self._state = self._model.extend(self._state, torch.tensor([unread], device=device))
            known += [read.select(torch.tensor([place], device=device)) for place in range(len(unread))]
            self._last, self._read = known[-1], self._read + len(unread)
        return known[-1 - len(more) :]

    def forget(self, length: int) -> None:
        """Rewind to the first `length` new tokens if more were read; the next `after` must read more."""
        if self._read > length:
            self._state = self._model.rewind(self._state, self._read - length)
            self._read = length


def _redraw(p_1V: Tensor, rejected: DraftToken | None, rng: Random) -> int:
    rest_1V = p_1V if rejected is None else (p_1V - rejected.q_1V).clamp(min=0)
    # If p and q differ by rounding only, the rest is empty, and p serves.
    return token_at((rest_1V if bool(rest_1V.any()) else p_1V)[0], rng.random())


PICK_DISTRIBUTIONS: dict[type, Callable[[Tensor], Tensor]] = {
    Multinomial: lambda scores_NV: scores_NV.double().softmax(dim=-1),
    ArgMax: lambda scores_NV: F.one_hot(scores_NV.argmax(-1), scores_NV.shape[1]).double(),
}
"""The distribution of the token that a pick draws."""


def _check_rewindable(model: StepModel, role: str) -> None:
    check_model(model)
    if model.rewindable is None:
        raise TypeError(
            f"speculative decoding rewinds rejected tokens, but {role}, a {type(model).__name__}, cannot: "
            "use a model such as a TransformerLM, or a Contrast of two"
        )
