"""Perplexity: how many equally probable tokens a model wavers between, on average, at each token of a text.

    PPL = exp( −1/T Σ_t log p(y_t | y_{<t}) )

Jelinek, Mercer, Bahl & Baker 1977; papers.bib: jelinek1977perplexity

Every token weighs the same, whichever text it is of. The first token of a text is not scored, since nothing
stands before it (a tokenizer that writes a beginning-of-text token gives it something). How texts longer than
the context are read is in teacher_forcing.py. Perplexities under different tokenizers do not compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf

from unspool.evaluate.teacher_forcing import encode, fitting, read, windows
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
    *,
    context: int | None = None,
    stride: int | None = None,
    batch: int = 8,
) -> Perplexity:
    """The perplexity of texts, strings or token ids.

    `context` is the most tokens read at once (the model's own limit, but no more than 1024), `stride` how
    many of them each window scores after the first (half of the context): smaller is slower and kinder.
    """
    rows = encode(model, texts)
    nats, counts = [0.0] * len(rows), [0] * len(rows)
    for seen in read(model, windows(rows, fitting(model, context), stride), batch=batch):
        logp_M = seen.logp_MV.gather(1, seen.token_M[:, None])[:, 0].double()
        for place, logp in zip(seen.text_M.tolist(), logp_M.tolist(), strict=True):
            nats[place] -= logp
            counts[place] += 1
    by_text = tuple(_exp(total / count) for total, count in zip(nats, counts, strict=True))
    return Perplexity(sum(nats), sum(counts), by_text)


def _exp(x: float) -> float:
    return exp(x) if x < 709 else inf
