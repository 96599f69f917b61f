"""Minimum Bayes risk: of many candidates, the one that is most like the others.

    y* = argmax_{h ∈ S} 1/(|S| − 1) Σ_{r ∈ S∖{h}} u(h, r),   S drawn from the model

Eikema & Aziz 2020 (papers.bib: eikema2020map); with the candidates as their own references, Eikema & Aziz
2022 (papers.bib: eikema2022sampling). S is `samples` texts of the `sampler`; u is the `utility`, chrF
(Popović 2015, eq. 1; papers.bib: popovic2015chrf) for models with text and F₁ of the token ids for others.

A text drawn twice counts twice among the references, and once among the answers: where fewer than n different
texts were drawn, fewer are given. `total` is the expected utility, `sample` the rank; of equally good texts
the one drawn first wins. A user's utility is called with two texts, or, where the model has no text, with two
tuples of token ids (the end-of-text token left out).

Differs from the papers: a candidate is not compared with itself, which for a utility of 1 (or 100) between
equal texts changes no rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from unspool.decode.arguments import as_number, check_int, function_of, shown
from unspool.decode.hypothesis import Hypothesis, Job, SearchStep
from unspool.decode.search.sampling import Sample
from unspool.interfaces import Decoder, StepModel


class Utility(Protocol):
    """How good a hypothesis is if the reference is what was wanted; a higher one is better."""

    def __call__(self, hypothesis: Any, reference: Any) -> float:
        """Two texts, or two tuples of token ids."""
        ...


@dataclass(frozen=True)
class ChrF:
    """Character n-gram F-score, 0 … 100, by sacrebleu; `word_order=2` is chrF++."""

    needs_text: ClassVar[bool] = True
    """It compares characters, and not token ids."""

    char_order: int = 6
    word_order: int = 0
    beta: int = 2
    metric: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_int(self, "char_order", at_least=1, advice="The paper has 6.")
        check_int(self, "word_order", at_least=0, advice="0 is chrF, 2 is chrF++.")
        check_int(self, "beta", at_least=1, advice="Recall counts beta times as much; the paper has 2.")
        try:
            from sacrebleu.metrics.chrf import CHRF
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "chrF needs the sacrebleu package: pip install unspool[evaluate], or give MBR another utility"
            ) from error
        metric = CHRF(char_order=self.char_order, word_order=self.word_order, beta=self.beta)
        object.__setattr__(self, "metric", metric)

    def __call__(self, hypothesis: str, reference: str) -> float:
        """100 for equal texts, 0 where they share no n-gram."""
        if hypothesis == reference:
            return 100.0
        score: float = self.metric.sentence_score(hypothesis, [reference]).score
        return score


@dataclass(frozen=True)
class TokenF1:
    """F₁ of the two bags of tokens, 0 … 1: 2 |h ∩ r| / (|h| + |r|)."""

    def __call__(self, hypothesis: Sequence[Any], reference: Sequence[Any]) -> float:
        """1 for equal bags, of which two empty ones are a pair."""
        if not hypothesis and not reference:
            return 1.0
        shared = (Counter(hypothesis) & Counter(reference)).total()
        return 2 * shared / (len(hypothesis) + len(reference))


@dataclass(frozen=True)
class MBR:
    """MBR(16, Sample(Epsilon(0.02))): draw 16 texts, return the one that the others agree with most."""

    samples: int = 16
    """How many texts are drawn for each prompt."""
    sampler: Decoder = field(default_factory=Sample)
    """What draws them; any search that gives `samples` texts."""
    utility: Utility | None = None
    """What is maximised in expectation; None for ChrF() or, without text, TokenF1()."""

    def __post_init__(self) -> None:
        check_int(self, "samples", at_least=2, advice="One text has no others to agree with.")
        if isinstance(self.sampler, type) or not hasattr(self.sampler, "streams"):
            raise TypeError(f"MBR.sampler is {shown(self.sampler)}: give a search such as Sample()")
        if self.utility is not None and not function_of(self.utility, 2):
            raise TypeError(f"MBR.utility is {shown(self.utility)}: give a function of two texts, or ChrF()")

    @property
    def streams(self) -> bool:
        """Nothing is certain before every candidate has been compared."""
        return False

    def __call__(self, model: StepModel, job: Job) -> Iterator[SearchStep]:
        """Yield the candidates as they grow, and the best of them at the end."""
        if job.n > self.samples:
            raise ValueError(
                f"n={job.n} texts were asked of {self.samples} candidates: ask for fewer, or draw more"
            )
        utility = self.utility or (ChrF() if job.detokenizers else TokenF1())
        if getattr(utility, "needs_text", False) and not job.detokenizers:
            raise ValueError(
                f"{utility!r} compares texts, and this model has no tokenizer: use MBR(utility=TokenF1()), "
                "which compares token ids"
            )
        return self._search(model, job, utility)

    def _search(self, model: StepModel, job: Job, utility: Utility) -> Iterator[SearchStep]:
        drawn: list[list[Hypothesis]] = [[] for _ in job.prompts]
        for frontier in self.sampler(model, job.with_samples(self.samples)):
            for path in frontier.ended:
                drawn[path.request].append(path)
            yield SearchStep(frontier.live)
        ended = [path for group in drawn for path in rank(group, job, utility)[: job.n]]
        yield SearchStep((), tuple(ended))


def rank(paths: Sequence[Hypothesis], job: Job, utility: Utility) -> list[Hypothesis]:
    """The different texts of one prompt by expected utility, the best first."""
    first: dict[Any, Hypothesis] = {}
    count: Counter[Any] = Counter()
    for path in sorted(paths, key=lambda path: path.sample):
        first.setdefault(job.content(path), path)
        count[job.content(path)] += 1
    expected = {content: _expected(content, count, utility) for content in count}
    return [
        replace(
            first[content],
            sample=position,
            total=expected[content],
            notes={**first[content].notes, "candidates": len(paths), "different": len(count)},
        )
        for position, content in enumerate(sorted(first, key=lambda content: -expected[content]))
    ]


def _expected(hypothesis: Any, count: Counter[Any], utility: Utility) -> float:
    """The mean utility against every drawn text but one copy of the hypothesis itself."""
    others = count - Counter([hypothesis]) or Counter([hypothesis])
    worth = {reference: utility(hypothesis, reference) for reference in others}
    for reference, value in worth.items():
        advice = f"It is that of {shown(hypothesis)} where {shown(reference)} was wanted."
        worth[reference] = as_number("a utility", value, advice=advice)
    return math.fsum(times * worth[reference] for reference, times in others.items()) / others.total()
