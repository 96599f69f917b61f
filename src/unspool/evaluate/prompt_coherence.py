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
from statistics import fmean
from typing import Any

import torch

from unspool.decode.combine.lockstep import check_model
from unspool.decode.score import Score, score
from unspool.evaluate.diversity import check_texts
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
    check_texts(texts)
    check_texts(prompts, "prompts", texts)
    lists: Any = list(prompts), list(texts)
    own: list[Score] = score(model, *lists, batch_size=batch)
    fits = tuple(map(_mean, own))
    gains: tuple[float, ...] = ()
    if len(set(map(_key, prompts))) > 1:
        others: Any = _other_prompts(prompts)
        # Score the same tokens, because encoding the text with another prompt could change them.
        other_scores: list[Score] = score(model, others, [it.tokens for it in own], batch_size=batch)
        gains = tuple(own_fit - _mean(it) for own_fit, it in zip(fits, other_scores, strict=True))
    similarities: tuple[float, ...] = ()
    if not model.is_encoder_decoder and model.start([own[0].tokens])[0].hidden_ND is not None:
        prompts_ND = features(model, prompts, batch=batch).double()
        texts_ND = features(model, [it.tokens for it in own], batch=batch).double()
        similarities = tuple(torch.cosine_similarity(prompts_ND, texts_ND, eps=1e-300).tolist())
    return Coherence(
        fit=fmean(fits),
        gain=fmean(gains) if gains else None,
        similarity=fmean(similarities) if similarities else None,
        fits=fits,
        gains=gains,
        similarities=similarities,
    )


def _other_prompts(prompts: Sequence[str | Sequence[int]]) -> list[str | Sequence[int]]:
    """Return, for each prompt, the nearest earlier prompt that differs, cyclically."""
    others = []
    for index, own in enumerate(prompts):
        candidates = (prompts[(index - back) % len(prompts)] for back in range(1, len(prompts)))
        others.append(next(it for it in candidates if _key(it) != _key(own)))
    return others


def _key(prompt: str | Sequence[int]) -> str | tuple[int, ...]:
    return prompt if isinstance(prompt, str) else tuple(prompt)


def _mean(found: Score) -> float:
    return found.total / len(found.tokens)
