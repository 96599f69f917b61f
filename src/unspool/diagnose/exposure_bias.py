"""Exposure bias: how much worse a model does after its own words than after the right ones, by their number.

    gap(l) = 1/s Σ_{j ≤ s} [ −log p̂(y_{l+j} | x, ŷ_{≤l}) + log p̂(y_{l+j} | x, y_{≤l}) ],   ŷ drawn from p̂
    with a known truth:   D(l) = E_{prefixes of l words} KL( p* ‖ p̂ ),   gap(l) = D_own(l) − D_right(l)

He et al. 2021, §3–4 (papers.bib: he2021exposure), whose EB-C is the quotient of the two divergences; Bengio
et al. 2015, §1, for the name of the trouble (papers.bib: bengio2015scheduled).

The first is of any text, and counts two things as one: own words that are wrong, and own words that are only
different, after which the rest of this text is improbable for good reasons. The second is exact: the truth
says what should follow the model's words. Where they are impossible, the truth has nothing to say: such texts
leave, and are counted (`lost`). Symbols: x `prompt`, s `span`, y `right`, ŷ `own`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

from unspool.data.languages.known_language import KnownLanguage
from unspool.decode.arguments import as_whole, items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.generate import generate
from unspool.decode.score import score
from unspool.decode.search import Sample
from unspool.evaluate.teacher_forcing import token_pairs
from unspool.protocols import StepModel

Tokens = tuple[int, ...]
LONGEST = 100_000
LENGTHS = (1, 2, 4, 8, 16, 32)
SPAN = 8
ROWS = 256


@dataclass(frozen=True)
class ExposurePoint:
    """After so many words."""

    length: int
    right: float
    """Nats a token after right words: of the text's next tokens, or from the truth."""
    own: float
    """The same after the model's own words."""
    texts: int
    """How many texts of the model were that long."""
    lost: float | None = None
    """The share of the model's texts that no truth can go on with, by then; None where there is no truth."""

    @property
    def gap(self) -> float:
        """How much worse it does after its own words."""
        return self.own - self.right


@dataclass(frozen=True)
class Exposure:
    """The gap, by length."""

    points: tuple[ExposurePoint, ...]

    @property
    def gap(self) -> float:
        """The mean over all texts and lengths."""
        texts = sum(it.texts for it in self.points)
        return sum(it.gap * it.texts for it in self.points) / texts


def exposure(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    lengths: Sequence[int] = LENGTHS,
    *,
    span: int = SPAN,
    seed: int = 0,
) -> Exposure:
    """On texts whose right continuation is known: a prompt (or source) and what follows, as tokens."""
    lengths, span, seed = _checked(model, lengths, span, seed)
    rows = [(prompt, right) for prompt, right in token_pairs(texts) if len(right) > min(lengths)]
    if not rows:
        raise ValueError(
            f"no text goes on for more than {min(lengths)} tokens after its prompt: give longer texts, or "
            "shorter lengths"
        )
    seeds = [Random(f"{seed} {at}").getrandbits(60) for at in range(len(rows))]
    said = generate(
        model, [it for it, _ in rows], Sample(), max_new_tokens=max(lengths), seed=seeds, batch_size=ROWS
    )
    own = [out.tokens[:-1] if out.finish == "eos" else out.tokens for out in said]
    whole = [it.logps for it in score(model, [it for it, _ in rows], [right for _, right in rows])]
    points = []
    for length in sorted(set(lengths)):
        fit = [at for at, (_, right) in enumerate(rows) if len(own[at]) >= length and len(right) > length]
        if not fit:
            continue
        after = [(*own[at][:length], *rows[at][1][length : length + span]) for at in fit]
        scored = [it.logps[length:] for it in score(model, [rows[at][0] for at in fit], after)]
        right = [whole[at][length : length + span] for at in fit]
        points.append(ExposurePoint(length, _nats(right), _nats(scored), len(fit)))
    if not points:
        raise ValueError("the model ended all its texts at once: there are no words of its own to go on from")
    return Exposure(tuple(points))


def true_exposure(
    model: StepModel,
    language: KnownLanguage[Any],
    lengths: Sequence[int] = LENGTHS,
    *,
    texts: int = 256,
    seed: int = 0,
) -> Exposure:
    """On a language whose truth is known, and whose tokens are the model's."""
    lengths, texts, seed = _checked(model, lengths, texts, seed)
    if not isinstance(language, KnownLanguage):
        raise TypeError(f"language is {shown(language)}, but must be one of unspool.data.languages")
    if language.vocab_size != model.vocab_size:
        raise ValueError(
            f"the language has {language.vocab_size} tokens, the model {model.vocab_size}: they must be equal"
        )
    dice, longest = Random(seed), max(lengths)
    right = [language.sample(dice)[:longest] for _ in range(texts)]
    seeds = [Random(f"{seed} {at}").getrandbits(60) for at in range(texts)]
    prompts = [(language.bos,)] * texts
    said = generate(model, prompts, Sample(), max_new_tokens=longest, seed=seeds, batch_size=ROWS)
    own = [out.tokens[:-1] if out.finish == "eos" else out.tokens for out in said]
    after_right, after_own = (list(_divergences(model, language, rows)) for rows in (right, own))
    points = []
    for length in sorted(set(lengths)):
        if length < min(len(after_right), len(after_own)):
            truly, (mine, lost) = after_right[length][0], after_own[length]
            points.append(
                ExposurePoint(length, float(np.mean(truly)), float(np.mean(mine)), len(mine), lost / texts)
            )
    if not points:
        raise ValueError("no text of the model is as long as the lengths asked for: give shorter lengths")
    return Exposure(tuple(points))


@torch.inference_mode()
def _divergences(
    model: StepModel, language: KnownLanguage[Any], rows: Sequence[Sequence[int]]
) -> Iterator[tuple[list[float], int]]:
    """After 0, 1, … words: KL(p* ‖ p̂) of every row that goes on, and how many rows were lost by then."""
    live: list[tuple[Sequence[int], Any]] = [(row, language.start()) for row in rows]
    step, state = model.start([(language.bos,)] * len(rows))
    length = lost = 0
    while True:
        true_NV = np.stack([language.chances(truth) for _, truth in live])
        yield _kl(true_NV, step.logp_NV.double().cpu().numpy()), lost
        stay = [n for n, (row, _) in enumerate(live) if len(row) > length]
        possible = [n for n in stay if language.chance(live[n][1], live[n][0][length]) > 0]
        lost += len(stay) - len(possible)
        if not possible:
            return
        state = state.select(torch.tensor(possible, device=step.logp_NV.device))
        tokens = [live[n][0][length] for n in possible]
        live = [
            (live[n][0], language.after(live[n][1], token)) for n, token in zip(possible, tokens, strict=True)
        ]
        step, state = model.step(state, torch.tensor(tokens, device=step.logp_NV.device))
        length += 1


def _kl(true_NV: Any, logp_NV: Any) -> list[float]:
    """Σ p* (log p* − log p̂) of each row, in which 0 · log 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts_NV = np.where(true_NV > 0, true_NV * (np.log(true_NV) - logp_NV), 0.0)
    return [float(it) for it in parts_NV.sum(axis=1)]


def _nats(rows: Sequence[Sequence[float]]) -> float:
    """−log p of a token, on average over all."""
    return -sum(map(sum, rows)) / sum(map(len, rows))


def _checked(
    model: StepModel, lengths: Sequence[int], count: int, seed: int
) -> tuple[tuple[int, ...], int, int]:
    """Lengths, another number and the seed, where they can be used."""
    check_model(model)
    wanted = items("lengths", lengths, "whole numbers, each at least 1")
    if not wanted:
        raise ValueError("lengths is empty: give whole numbers, each at least 1")
    advice = "It counts tokens or texts."
    each = tuple(as_whole("lengths", it, at_least=1, advice="Each counts tokens.") for it in wanted)
    if max(each) > LONGEST:
        raise ValueError(f"lengths has {max(each)}, and texts of up to {LONGEST} tokens are looked at")
    return each, as_whole("span or texts", count, at_least=1, advice=advice), _seed(seed)


def _seed(seed: int) -> int:
    """A seed, where it is one."""
    return as_whole("seed", seed, at_least=0, advice="The same seed gives the same texts.")
