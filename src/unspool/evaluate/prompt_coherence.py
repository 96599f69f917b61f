"""Coherence: how well a continuation goes with its prompt, in the eyes of a model.

    fit(x, y)        = (1/|y|) Σ_t log p(y_t | x, y_{<t})
    gain(x, y)       = (1/|y|) [ log p(y | x) − log p(y | x′) ],   x′ the prompt of another text
    similarity(x, y) = cos(h(x), h(y))

Fit is what Su & Xu 2022 call coherence (papers.bib: su2022empirical); a text that repeats itself fits very
well. Gain takes that away, and asks what the prompt tells about the text: it is the pointwise mutual
information of Li et al. 2016 (papers.bib: li2016diversity), with other prompts in place of no prompt.
Similarity is Li et al. 2023's (papers.bib: li2023contrastive), with h the hidden state that any model has
after the last token, not a sentence encoder's: only differences between systems under one model mean
something.

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
    """The means over texts, and the numbers of each text."""

    fit: float
    """Nats a token: log p of the text after its prompt."""
    gain: float | None
    """Nats a token that its own prompt gives it beyond another's; None of one text alone."""
    similarity: float | None
    """Of hidden states, −1 … 1; None where the model shows none, or is an encoder–decoder."""
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
    """Of continuations and their prompts, strings or token ids.

    Another's prompt is that of the text before.
    """
    check_model(model)
    before = items("prompts", prompts, "a list of prompts, one for each text")
    after = items("texts", texts, "a list of texts")
    if len(before) != len(after) or not after:
        raise ValueError(
            f"{len(before)} prompts stand before {len(after)} texts: give one prompt for each text, of one "
            "text or more"
        )
    for place, prompt in enumerate(before):
        if not isinstance(prompt, Sequence):
            raise TypeError(f"prompt {place} is {shown(prompt)}, but must be a string or token ids")
    own = score(model, list(before), list(after), batch_size=batch)
    fits = tuple(map(_mean, own))
    gains: tuple[float, ...] = ()
    if len(set(map(_key, before))) > 1:
        others: Any = _others(before)
        # The same tokens after another prompt: encoded together with it they might be others.
        moved: list[Score] = score(model, others, [it.tokens for it in own], batch_size=batch)
        gains = tuple(mine - _mean(it) for mine, it in zip(fits, moved, strict=True))
    likenesses = (
        () if model.is_encoder_decoder else _similarities(model, before, [it.tokens for it in own], batch)
    )
    return Coherence(
        fit=_average(fits),
        gain=_average(gains) if gains else None,
        similarity=_average(likenesses) if likenesses else None,
        fits=fits,
        gains=gains,
        similarities=likenesses,
    )


def _others(prompts: Sequence[str | Sequence[int]]) -> list[str | Sequence[int]]:
    """For each place the nearest prompt before it, round the corner, that is another one."""
    found = []
    for place, mine in enumerate(prompts):
        turned = (prompts[(place - back) % len(prompts)] for back in range(1, len(prompts)))
        found.append(next(it for it in turned if _key(it) != _key(mine)))
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
