"""Minimum Bayes risk decoding: of many samples, return the one that is most similar to the others.

    y* = argmax_{h ∈ S} 1/(|S| − 1) Σ_{r ∈ S∖{h}} u(h, r),   S drawn from the model

Eikema & Aziz 2020 (papers.bib: eikema2020map); with the candidates as their own references, Eikema & Aziz
2022 (papers.bib: eikema2022sampling). S is `samples` texts of the `sampler`; u is the `utility`, chrF
(Popović 2015, eq. 1; papers.bib: popovic2015chrf) for models with text and F₁ of the token ids for others.

A text drawn twice counts twice as a reference, and is returned once: if fewer than n different texts were
drawn, fewer are returned. `total` is the expected utility, `sample` the rank; of equally good texts the one
drawn first wins. A utility is called with two strings, or with two tuples of token ids (without the end
token) without a tokenizer.

Differs from the papers: a candidate is not compared with itself, which does not change the ranks if the
utility of equal texts is constant.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from unspool.arguments import Checked, as_number, function_of, integer, set_fields, shown
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.search.sampling import Sample
from unspool.interfaces import Decoder, StepModel
from unspool.lazy import sacrebleu_metrics

Utility = Callable[[Any, Any], float]
"""The quality of a hypothesis, given a reference: two strings, or two tuples of token ids."""


@dataclass(frozen=True)
class ChrF(Checked):
    """Character n-gram F-score, 0 … 100, by sacrebleu; `word_order=2` is chrF++."""

    needs_text: ClassVar[bool] = True

    char_order: int = integer(6, at_least=1, advice="The paper has 6.")
    word_order: int = integer(0, at_least=0, advice="0 is chrF, 2 is chrF++.")
    beta: int = integer(2, at_least=1, advice="Recall counts beta times as much; the paper has 2.")
    metric: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        metric = sacrebleu_metrics().CHRF(
            char_order=self.char_order, word_order=self.word_order, beta=self.beta
        )
        object.__setattr__(self, "metric", metric)

    def __call__(self, hypothesis: str, reference: str) -> float:
        if hypothesis == reference:
            return 100.0
        score: float = self.metric.sentence_score(hypothesis, [reference]).score
        return score


@dataclass(frozen=True)
class TokenF1:
    """F₁ of the two bags of tokens, 0 … 1: 2 |h ∩ r| / (|h| + |r|)."""

    def __call__(self, hypothesis: Sequence[Any], reference: Sequence[Any]) -> float:
        if not hypothesis and not reference:
            return 1.0
        shared = (Counter(hypothesis) & Counter(reference)).total()
        return 2 * shared / (len(hypothesis) + len(reference))


@dataclass(frozen=True)
class MBR(Checked):
    """MBR(16, Sample(Epsilon(0.02))): draw 16 texts, return the one with the highest expected utility."""

    samples: int = integer(16, at_least=2, advice="One text cannot be compared with others.")
    """Number of texts drawn for each prompt."""
    sampler: Decoder = field(default_factory=Sample)
    """The decoder that draws them, or its string; it must return `samples` texts."""
    utility: Utility | None = None
    """The utility to maximise; None is ChrF(), or TokenF1() without a tokenizer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.sampler, str):
            from unspool.decode.spec import parse  # which imports this module

            set_fields(self, sampler=parse(self.sampler))
        if isinstance(self.sampler, type) or not hasattr(self.sampler, "streams"):
            raise TypeError(f"MBR.sampler is {shown(self.sampler)}: give a decoder such as Sample()")
        if self.utility is not None and not function_of(self.utility, 2):
            raise TypeError(f"MBR.utility is {shown(self.utility)}: give a function of two texts, or ChrF()")

    streams: ClassVar[bool] = False

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        if job.n > self.samples:
            raise ValueError(f"n={job.n} is more than samples={self.samples}: reduce n or increase samples")
        utility = self.utility or (ChrF() if job.detokenizers else TokenF1())
        if getattr(utility, "needs_text", False) and not job.detokenizers:
            raise ValueError(
                f"{utility!r} compares texts but the model has no tokenizer: use MBR(utility=TokenF1())"
            )
        return self._search(model, job, utility)

    def _search(self, model: StepModel, job: Job, utility: Utility) -> Iterator[SearchStep]:
        drawn: list[list[Hypothesis]] = [[] for _ in job.prompts]
        for step in self.sampler(model, job.with_samples(self.samples)):
            for hypothesis in step.ended:
                drawn[hypothesis.request].append(hypothesis)
            yield SearchStep(step.live)
        ended = [hypothesis for group in drawn for hypothesis in rank(group, job, utility)[: job.n]]
        yield SearchStep((), tuple(ended))


def rank(hypotheses: Sequence[Hypothesis], job: Job, utility: Utility) -> list[Hypothesis]:
    """The different texts of one prompt by expected utility, best first."""
    first: dict[Any, Hypothesis] = {}
    count: Counter[Any] = Counter()
    for hypothesis in sorted(hypotheses, key=lambda hypothesis: hypothesis.sample):
        first.setdefault(job.content(hypothesis), hypothesis)
        count[job.content(hypothesis)] += 1
    expected = {content: _expected(content, count, utility) for content in count}
    return [
        replace(
            first[content],
            sample=position,
            total=expected[content],
            notes={**first[content].notes, "candidates": len(hypotheses), "different": len(count)},
        )
        for position, content in enumerate(sorted(first, key=lambda content: -expected[content]))
    ]


def _expected(hypothesis: Any, count: Counter[Any], utility: Utility) -> float:
    """The mean utility against all drawn texts except one copy of the hypothesis."""
    others = count - Counter([hypothesis]) or Counter([hypothesis])
    terms = []
    for reference, times in others.items():
        advice = f"It compares {shown(hypothesis)} with the reference {shown(reference)}."
        terms.append(times * as_number("a utility", utility(hypothesis, reference), advice=advice))
    return math.fsum(terms) / others.total()
