"""Coherence of a continuation with its prompt, measured by a model.

    fit(x, y)        = (1/|y|) Σ_t log p(y_t | x, y_{<t})
    similarity(x, y) = cos(h(x), h(y))

Fit is the coherence of Su & Xu 2022 (papers.bib: su2022empirical); repetitive text fits well. Similarity is
Li et al. 2023's (papers.bib: li2023contrastive), with h the hidden state after the last token instead of a
sentence encoder's: compare systems only under the same model.

Symbols: x `prompts`, y `texts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch

from unspool.decode.lockstep import check_model
from unspool.decode.score import Score, score
from unspool.evaluate.diversity import check_texts
from unspool.evaluate.mauve_curve import features
from unspool.interfaces import StepModel


@dataclass(frozen=True)
class Coherence:
    """Means over texts, and the values of each text."""

    fit: float
    """Mean log p of a token after its prompt, in nats."""
    similarity: float | None
    """Cosine of hidden states; None for encoder–decoders and models without hidden states."""
    fits: tuple[float, ...]
    similarities: tuple[float, ...]


def coherence(
    model: StepModel,
    prompts: Sequence[str | Sequence[int]],
    texts: Sequence[str | Sequence[int]],
) -> Coherence:
    """Measure continuations and their prompts, strings or token ids."""
    check_model(model)
    check_texts(texts)
    check_texts(prompts, "prompts", texts)
    lists: Any = list(prompts), list(texts)
    own: list[Score] = score(model, *lists)
    fits = tuple(scored.total / len(scored.tokens) for scored in own)
    similarities: tuple[float, ...] = ()
    if not model.is_encoder_decoder and model.start([own[0].tokens])[0].hidden_ND is not None:
        prompts_ND = features(model, prompts).double()
        texts_ND = features(model, [scored.tokens for scored in own]).double()
        similarities = tuple(torch.cosine_similarity(prompts_ND, texts_ND, eps=1e-300).tolist())
    return Coherence(
        fit=fmean(fits),
        similarity=fmean(similarities) if similarities else None,
        fits=fits,
        similarities=similarities,
    )
