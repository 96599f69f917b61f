"""Coherence of a continuation with its prompt, measured by a model.

    fit(x, y)        = (1/|y|) Σ_t log p(y_t | x, y_{<t})
    gain(x, y)       = (1/|y|) [ log p(y | x) − log p(y | x′) ],   x′ the prompt of another text
    similarity(x, y) = cos(h(x), h(y))

Fit is the coherence of Su & Xu 2022 (papers.bib: su2022empirical); repetitive text fits well. Gain measures
how much the prompt says about the text: it is the pointwise mutual information of Li et al. 2016
(papers.bib: li2016diversity), with another prompt instead of an empty one. Similarity is Li et al. 2023's
(papers.bib: li2023contrastive), with h the hidden state after the last token instead of a sentence
encoder's: compare systems only under the same model.

Symbols: x `prompts`, y `texts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from torch import Tensor

from unspool.decode.arguments import items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.score import Score, score
from unspool.evaluate.mauve_curve import features
from unspool.interfaces import StepModel


@dataclass(frozen=True)
class Coherence:
    """Means over texts, and the values of each text."""

    fit: float
    """Mean log p of a token after its prompt, in nats."""
    gain: float | None
    """Fit minus the fit after another prompt, in nats; None if all prompts are equal."""
    similarity: float | None
    """Cosine of hidden states; None for encoder–decoders and models without hidden states."""
    fits: tuple[float, ...]
    gains: tuple[float, ...]
    similarities: tuple[float, ...]


def coherence(
    model: StepModel,
    prompts: Sequence[str | Sequence[int]],
    texts: Sequence[str | Sequence[int]],
    *,
    batch: int = 8,
) -> Coherence:
    """Measure continuations and their prompts, strings or token ids.

    The other prompt, for the gain, is the previous one that differs.
    """
    check_model(model)
    contexts = items("prompts", prompts, "a list of prompts, one for each text")
    replies = items("texts", texts, "a list of texts")
    if len(contexts) != len(replies) or not replies:
        raise ValueError(f"{len(contexts)} prompts but {len(replies)} texts: give one prompt for each text")
    for index, prompt in enumerate(contexts):
        if not isinstance(prompt, Sequence):
            raise TypeError(f"prompt {index} is {shown(prompt)}, but must be a string or token ids")
    own = score(model, list(contexts), list(replies), batch_size=batch)
    fits = tuple(map(_mean, own))
    gains: tuple[float, ...] = ()
    if len(set(map(_key, contexts))) > 1:
        others: Any = _other_prompts(contexts)
        # Score the same tokens, because encoding the text with another prompt could change them.
        other_scores: list[Score] = score(model, others, [it.tokens for it in own], batch_size=batch)
        gains = tuple(own_fit - _mean(it) for own_fit, it in zip(fits, other_scores, strict=True))
    similarities = (
        () if model.is_encoder_decoder else _similarities(model, contexts, [it.tokens for it in own], batch)
    )
    return Coherence(
        fit=_average(fits),
        gain=_average(gains) if gains else None,
        similarity=_average(similarities) if similarities else None,
        fits=fits,
        gains=gains,
        similarities=similarities,
    )


def _other_prompts(prompts: Sequence[str | Sequence[int]]) -> list[str | Sequence[int]]:
    """Return, for each prompt, the nearest earlier prompt that differs, cyclically."""
    found = []
    for index, own_fit in enumerate(prompts):
        candidates = (prompts[(index - back) % len(prompts)] for back in range(1, len(prompts)))
        found.append(next(it for it in candidates if _key(it) != _key(own_fit)))
    return found


def _key(prompt: str | Sequence[int]) -> str | tuple[int, ...]:
    return prompt if isinstance(prompt, str) else tuple(prompt)


def _similarities(
    model: StepModel,
    prompts: Sequence[str | Sequence[int]],
    texts: Sequence[Sequence[int]],
    batch: int,
) -> tuple[float, ...]:
    if model.start([texts[0]])[0].hidden_ND is None:
        return ()
    left_ND, right_ND = features(model, prompts, batch=batch), features(model, texts, batch=batch)
    return tuple(_cosine(left_ND, right_ND))


def _cosine(left_ND: Tensor, right_ND: Tensor) -> list[float]:
    left_ND, right_ND = left_ND.double(), right_ND.double()
    lengths_N = left_ND.norm(dim=1) * right_ND.norm(dim=1)
    cosine_N = (left_ND * right_ND).sum(dim=1) / lengths_N.clamp_min(1e-300)
    return [float(it) for it in cosine_N]


def _mean(found: Score) -> float:
    return found.total / len(found.tokens)


def _average(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
