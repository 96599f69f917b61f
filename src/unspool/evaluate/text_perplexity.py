"""Perplexity: how many equally probable tokens a model wavers between, on average, at each token of a text.

    PPL = exp( −1/T Σ_t log p(y_t | y_{<t}) )

Jelinek, Mercer, Bahl & Baker 1977; papers.bib: jelinek1977perplexity

Every token weighs the same, whichever text it is of. The first token of a text is not scored, since nothing
stands before it (a tokenizer that writes a beginning-of-text token gives it something). A text longer than
the context is read in windows that overlap by half of it; teacher_forcing.py says how. Of an encoder–decoder
every token of the target is scored, given its source, and of a target that is a string its end, too.
Perplexities under different tokenizers do not compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf

from unspool.evaluate.teacher_forcing import forced, read
from unspool.protocols import StepModel


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of texts, and what it was made of."""

    nats: float
    """−Σ log p of all tokens."""
    tokens: int
    """How many were scored."""
    by_text: tuple[float, ...]
    """The perplexity of each text alone."""

    @property
    def value(self) -> float:
        """exp(nats / tokens)."""
        return _exp(self.nats / self.tokens)


def perplexity(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    sources: Sequence[str | Sequence[int]] | None = None,
    *,
    context: int | None = None,
    stride: int | None = None,
    batch: int = 8,
) -> Perplexity:
    """The perplexity of texts, strings or token ids.

    `context` is the most tokens read at once (the model's own limit, but no more than 1024), `stride` how
    many of them each window scores after the first (half of the context): smaller is slower and kinder.
    An encoder–decoder needs `sources`, one for each text: the texts are then its targets.
    """
    parts = forced(model, texts, sources, context=context, stride=stride)
    nats, counts = [0.0] * len(texts), [0] * len(texts)
    for seen in read(model, parts, batch=batch):
        logp_M = seen.logp_MV.gather(1, seen.token_M[:, None])[:, 0].double()
        for place, logp in zip(seen.text_M.tolist(), logp_M.tolist(), strict=True):
            nats[place] -= logp
            counts[place] += 1
    by_text = tuple(_exp(total / count) for total, count in zip(nats, counts, strict=True))
    return Perplexity(sum(nats), sum(counts), by_text)


def _exp(x: float) -> float:
    return exp(x) if x < 709 else inf
