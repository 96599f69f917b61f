"""Speculative decoding: draft several tokens cheaply, and verify them in one pass of the model.

    x ~ q,  accepted with probability min(1, p(x)/q(x));  if rejected  x ~ max(0, p − q), normalised

Leviathan et al. 2023, §2.3 and algorithm 1 (papers.bib: leviathan2023fast); Chen et al. 2023, algorithm 2
(papers.bib: chen2023accelerating). p is the model's distribution and q the draft's, both reshaped by the
transforms; γ is `length`. The texts have exactly the distribution p; the draft only determines how many
tokens a round yields, 1 to γ + 1. With ArgMax() as the pick, the text is that of greedy search. The same seed
gives other texts than Sample; only their distribution is the same.

A draft is a smaller model, or PromptLookup(), whose q is 1 for one token. After a rejection, a row drafts one
token more from its text than were accepted, and after each round without one twice as many, up to γ. A draft
may depend on all tokens before it.

The notes of a hypothesis count the tokens `proposed` and `accepted`, and the `rounds`, each one pass of the
model. Models with `joining` read all rows that drafted the same number of tokens in one pass, others row
after row. Stop conditions and stop strings apply to accepted tokens only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from unspool.arguments import as_int, set_fields
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep, split_ended
from unspool.decode.lockstep import check_model, check_parts
from unspool.decode.multinomial import Multinomial, token_at
from unspool.decode.picks import ArgMax
from unspool.decode.prompts import tokens_left
from unspool.decode.search.drafts import (
    Distribution,
    DraftedRow,
    Drafter,
    DraftToken,
    LookupDrafter,
    ModelDrafter,
    PromptLookup,
    Reader,
    ReaderFactory,
    extend,
)
from unspool.decode.search.sampling import Sample, bind_transforms, reshape
from unspool.decode.transforms.scores import peaks
from unspool.interfaces import Pick, Step, StepModel, Transform


@dataclass(frozen=True, init=False, repr=False)
class Speculative:
    """Speculative(draft, Temperature(0.8)): the distribution of Sample(Temperature(0.8)), faster."""

    draft: StepModel | PromptLookup
    sample: Sample
    length: int

    def __init__(self, draft: StepModel | PromptLookup, *rules: Transform | Pick, length: int = 4) -> None:
        advice = "It is the number of drafted tokens, usually 4."
        if not isinstance(draft, PromptLookup):
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

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        _check_rewindable(model, "the model")
        if not isinstance(self.draft, PromptLookup):
            check_parts((model, self.draft))
            self._check_context(self.draft, job)
        return self._rounds(model, job, bind_transforms(self.sample.transforms, model, job))

    @staticmethod
    def _check_context(draft: StepModel, job: Job) -> None:
        for prompt, limit in zip(job.prompts, job.limits, strict=True):
            free = tokens_left(draft, prompt)
            if free is not None and limit > free:
                raise ValueError(
                    f"a prompt of {len(prompt)} tokens and {limit} new ones exceed the draft's context, "
                    f"{draft.context}: reduce max_new_tokens, or use a draft with a longer context"
                )

    def _rounds(self, model: StepModel, job: Job, rules: tuple[Transform, ...]) -> Iterator[SearchStep]:
        pick = PICK_DISTRIBUTIONS[type(self.sample.pick)]

        def distribution(step: Step, hypothesis: Hypothesis) -> tuple[Tensor, Tensor]:
            scores_1V = reshape(step, [hypothesis], rules)
            peaks(scores_1V)
            return scores_1V, pick(scores_1V)

        readers = ReaderFactory(model, job)
        drafters = self._drafters(model, job, distribution)
        for hypotheses in job.batches():
            rows = [
                DraftedRow(
                    replace(hypothesis, notes={"proposed": 0, "accepted": 0, "rounds": 0}),
                    job.rng(hypothesis),
                )
                for hypothesis in hypotheses
            ]
            reader, drafter = readers.read(hypotheses), drafters(hypotheses)
            while rows:
                self._advance(rows, job, distribution, reader, drafter)
                yield split_ended([row.hypothesis for row in rows])
                stay = [place for place, row in enumerate(rows) if row.hypothesis.finish_reason is None]
                if len(stay) < len(rows):
                    rows = [rows[place] for place in stay]
                    reader.keep(stay)
                    drafter.keep(stay)

    def _drafters(
        self, model: StepModel, job: Job, distribution: Distribution
    ) -> Callable[[Sequence[Hypothesis]], Drafter]:
        if isinstance(self.draft, PromptLookup):
            return partial(LookupDrafter, self.draft, model, job, self.length)
        readers = ReaderFactory(self.draft, job)
        return lambda hypotheses: ModelDrafter(readers.read(hypotheses), job, distribution)

    def _advance(
        self,
        rows: Sequence[DraftedRow],
        job: Job,
        distribution: Distribution,
        reader: Reader,
        drafter: Drafter,
    ) -> None:
        """One round: draft, verify, and draw the one further token that the verification gives."""
        counts = [
            min(self.length, job.limits[row.hypothesis.request] - len(row.hypothesis.tokens) - 1)
            for row in rows
        ]
        drafts = drafter.draft(rows, counts)
        texts = [
            (row.hypothesis.tokens, [draft.token for draft in drafted])
            for row, drafted in zip(rows, drafts, strict=True)
        ]
        steps = reader.after(range(len(rows)), texts)
        for row, drafted, own in zip(rows, drafts, steps, strict=True):
            self._accept(row, drafted, own, job, distribution)
        lengths = [len(row.hypothesis.tokens) - 1 for row in rows]
        reader.forget(lengths)
        drafter.forget(lengths)

    @staticmethod
    def _accept(
        row: DraftedRow,
        drafted: Sequence[DraftToken],
        steps: Sequence[Step],
        job: Job,
        distribution: Distribution,
    ) -> None:
        """Append the accepted tokens and one more."""
        hypothesis, accepted = row.hypothesis, 0
        for draft, step in zip((*drafted, None), steps, strict=True):
            scores_1V, p_1V = distribution(step, hypothesis)
            is_accepted = draft is not None and row.rng.random() * draft.probability < p_1V[0, draft.token]
            token = draft.token if draft is not None and is_accepted else _redraw(p_1V, draft, row.rng)
            hypothesis = extend(hypothesis, token, step, scores_1V, job)
            accepted += bool(is_accepted)
            if not is_accepted or hypothesis.finish_reason is not None:
                break
        counts = {"proposed": len(drafted), "accepted": accepted, "rounds": 1}
        added = {name: hypothesis.notes[name] + count for name, count in counts.items()}
        row.hypothesis = replace(hypothesis, notes={**hypothesis.notes, **added})


def _redraw(p_1V: Tensor, rejected: DraftToken | None, rng: Random) -> int:
    rest_1V = p_1V if rejected is None else _rest(p_1V, rejected)
    # If p and q differ by rounding only, the rest is empty, and p serves.
    return token_at((rest_1V if bool(rest_1V.any()) else p_1V)[0], rng.random())


def _rest(p_1V: Tensor, rejected: DraftToken) -> Tensor:
    """max(0, p − q)."""
    if rejected.q_1V is not None:
        return (p_1V - rejected.q_1V).clamp(min=0)
    rest_1V = p_1V.clone()
    rest_1V[0, rejected.token] = 0
    return rest_1V


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
