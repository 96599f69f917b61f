"""Exposure bias: how much worse a model predicts after its own tokens than after the right ones.

On text, with a reference y, own tokens ŷ ~ p̂, and a second reference y′ ~ p̂ drawn from the model:

    gap_y(l)  = 1/s Σ_{j ≤ s} [ −log p̂(y_{l+j} | x, ŷ_{≤l}) + log p̂(y_{l+j} | x, y_{≤l}) ]
    excess(l) = E gap_y(l) − E gap_y′(l)

gap_y is above 0 for a perfect model as well, because y answers another prefix than ŷ. If p̂ = p*, y and y′
have the same distribution and the excess is 0. Both are cut to the shorter of the two, for the same reason.

With a known truth p* (u uniform over the words and EOS):

    D(l)      = E_{prefixes of l words} KL( (1−ε)p* + εu ‖ (1−ε)p̂ + εu )
    excess(l) = gap(l) = D_own(l) − D_right(l)

Mixing in ε·u keeps KL finite and never raises it; p̂ = p* has 0. After a word that the language cannot say,
p* is what it was before that word (`FullSupport`), so that texts that became impossible still count.
`possible` is D_own over the texts that are still possible, and shows how much of the gap depends on this
convention. A language with full support from the start (data with `noise`) needs no convention; there ε is
1e-9.

He et al. 2021, §3–4 (papers.bib: he2021exposure) compare distributions in the same spirit: their EB-C is the
quotient of the two divergences. Bengio et al. 2015, §1, for the problem (papers.bib: bengio2015scheduled).
Symbols: x `prompt`, s `span`, y `right`, ŷ `own`, y′ `drawn`, ε `EPSILON`.

The excess on text is no proof: a model whose texts depend on their prefix more (less) than real text does has
an excess below (above) 0 without any exposure bias. The known truth has no such limit.
Intervals are 95 % bootstrap intervals over texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unspool.data.known_languages.known_language import FullSupport, KnownLanguage
from unspool.decode.arguments import as_whole, items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.decode.generate import generate
from unspool.decode.score import score
from unspool.decode.search import Sample
from unspool.evaluate.significance import Interval, bootstrap
from unspool.evaluate.summed_measure import SummedMeasure
from unspool.evaluate.teacher_forcing import token_pairs
from unspool.interfaces import StepModel

Tokens = tuple[int, ...]
Numbers = NDArray[np.float64]
LONGEST = 100_000
LENGTHS = (1, 2, 4, 8, 16, 32)
SPAN = 8
ROWS = 256
EPSILON = 0.01
LEAST_LOGP = -30.0
"""A token of probability 0 counts as if it had this log-probability: the excess stays a number."""
RESOLUTION = 1e-6
"""Log-probabilities are float32: intervals are wider by so many nats."""


@dataclass(frozen=True)
class ExposurePoint:
    """After so many tokens."""

    length: int
    right: float
    """Nats a token after right tokens: loss of the text's next tokens, or divergence from the truth."""
    own: float
    """The same after the model's own tokens."""
    texts: int
    """How many texts of the model were that long."""
    perfect: float = 0.0
    """The gap that a perfect model would have: 0 with a known truth."""
    interval: Interval | None = None
    """Of the excess."""
    lost: float | None = None
    """The share of the model's texts that have become impossible by then; None without a known truth."""
    possible: float | None = None
    """`own` over the texts that are still possible; None without a known truth or such a text."""

    @property
    def gap(self) -> float:
        """How much worse the model does after its own tokens."""
        return self.own - self.right

    @property
    def excess(self) -> float:
        """How much larger the gap is than that of a perfect model."""
        return self.gap - self.perfect


@dataclass(frozen=True)
class Exposure:
    """The gap and its excess, by length."""

    points: tuple[ExposurePoint, ...]
    interval: Interval | None = None
    """Of the mean excess."""

    @property
    def gap(self) -> float:
        """The mean over all texts and lengths."""
        return self._mean([it.gap for it in self.points])

    @property
    def excess(self) -> float:
        """The mean over all texts and lengths: exposure bias, 0 for a perfect model."""
        return self._mean([it.excess for it in self.points])

    @property
    def verdict(self) -> str:
        """In words."""
        said = f"excess {self.excess:.3f} nats"
        if self.interval is None:
            return said
        low, high = self.interval.low, self.interval.high
        said += f" (95 % interval {low:.3f} to {high:.3f})"
        if low <= 0 <= high:
            return f"{said}: no exposure bias is seen, a perfect model could show the same"
        if low > 0:
            return f"{said}: the model does worse after its own tokens than a perfect model would"
        return f"{said}: the model loses less after its own tokens than a perfect model would"

    def _mean(self, values: Sequence[float]) -> float:
        texts = [it.texts for it in self.points]
        return float(np.average(values, weights=texts))


def exposure(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    lengths: Sequence[int] = LENGTHS,
    *,
    span: int = SPAN,
    seed: int = 0,
) -> Exposure:
    """On texts whose right continuation is known: a prompt (or source) and what follows, as tokens.

    If some continuations end with EOS, the drawn ones do as well; otherwise EOS is removed from them.
    """
    lengths, span, seed = _checked(model, lengths, span, seed)
    longest = max(lengths) + span
    pairs = [(prompt, right[:longest]) for prompt, right in token_pairs(texts) if len(right) > min(lengths)]
    if not pairs:
        raise ValueError(
            f"no text goes on for more than {min(lengths)} tokens after its prompt: give longer texts, or "
            "shorter lengths"
        )
    prompts = [prompt for prompt, _ in pairs]
    eos_ids = frozenset() if model.tokenizer is None else frozenset(model.tokenizer.eos_ids)
    end = any(right[-1] in eos_ids for _, right in pairs)
    own = _drawn(model, prompts, max(lengths), seed, "own")
    drawn = _drawn(model, prompts, max(len(right) for _, right in pairs), seed, "reference", end=end)
    rows = []
    for (prompt, right), mine, reference in zip(pairs, own, drawn, strict=True):
        common = min(len(right), len(reference))
        rows.append((prompt, mine, right[:common], reference[:common]))
    found: list[_Sums] = []
    whole = [_logps(model, [it[0] for it in rows], [it[which] for it in rows]) for which in (2, 3)]
    for length in sorted(set(lengths)):
        fit = [n for n, (_, mine, right, _) in enumerate(rows) if len(mine) >= length and len(right) > length]
        if not fit:
            continue
        sums = _Sums(length, np.zeros((len(rows), 6)))
        after = []
        for which in (2, 3):
            tokens = [(*rows[n][1][:length], *rows[n][which][length : length + span]) for n in fit]
            after.append(_logps(model, [rows[n][0] for n in fit], tokens))
        for place, n in enumerate(fit):
            count = len(after[0][place]) - length
            own_loss, own_perfect = (-sum(it[place][length:]) for it in after)
            right_loss, right_perfect = (-sum(it[n][length : length + span]) for it in whole)
            sums.counts_NK[n] = (1.0, own_loss, count, right_loss, count, own_perfect - right_perfect)
        found.append(sums)
    if not found:
        raise ValueError(
            "the model ended all its texts at once: there are no tokens of its own to go on from"
        )
    return _measured(found, seed)


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
        raise TypeError(f"language is {shown(language)}, but must be one of unspool.data.known_languages")
    if language.vocab_size != model.vocab_size:
        raise ValueError(
            f"the language has {language.vocab_size} tokens, the model {model.vocab_size}: they must be equal"
        )
    rng, longest = Random(seed), max(lengths)
    right = [language.sample(rng)[:longest] for _ in range(texts)]
    own = _drawn(model, [(language.bos,)] * texts, longest, seed, "own")
    right_NL, _ = _divergences(model, language, right)
    own_NL, left_N = _divergences(model, language, own)
    found, lost, possible = [], [], []
    for length in sorted(set(lengths)):
        if length >= min(right_NL.shape[1], own_NL.shape[1]):
            continue
        own_N, right_N = own_NL[:, length], right_NL[:, length]
        here_N, there_N = ~np.isnan(own_N), ~np.isnan(right_N)
        counts_KN = [here_N, np.nan_to_num(own_N), here_N, np.nan_to_num(right_N), there_N, 0 * here_N]
        found.append(_Sums(length, np.stack(counts_KN, axis=1).astype(float)))
        lost.append(float(np.mean(left_N < length)))
        still_N = here_N & (left_N >= length)
        possible.append(float(own_N[still_N].mean()) if still_N.any() else None)
    if not found:
        raise ValueError("no text of the model is as long as the lengths asked for: give shorter lengths")
    measured = _measured(found, seed)
    points = [
        replace(point, lost=share, possible=mean)
        for point, share, mean in zip(measured.points, lost, possible, strict=True)
    ]
    return replace(measured, points=tuple(points))


@dataclass(frozen=True)
class _Sums:
    """What each text adds at one length: texts, own nats and tokens, right nats and tokens, perfect nats."""

    length: int
    counts_NK: Numbers

    def point(self, seed: int) -> ExposurePoint:
        texts, own, own_tokens, right, right_tokens, perfect = self.counts_NK.sum(axis=0)
        measure = SummedMeasure(self.counts_NK, lambda sums_K: float(_excess(sums_K[None])[0]))
        return ExposurePoint(
            length=self.length,
            right=float(right / right_tokens),
            own=float(own / own_tokens),
            texts=int(texts),
            perfect=float(perfect / own_tokens),
            interval=_interval(measure, seed),
        )


def _measured(found: Sequence[_Sums], seed: int) -> Exposure:
    """The points, and the interval of their mean."""
    shape = (len(found), 6)
    counts_NK = np.concatenate([it.counts_NK for it in found], axis=1)

    def mean_excess(sums_K: Numbers) -> float:
        sums_LK = sums_K.reshape(shape)
        sums_LK = sums_LK[(sums_LK[:, 2] > 0) & (sums_LK[:, 4] > 0)]
        return float(np.average(_excess(sums_LK), weights=sums_LK[:, 0])) if len(sums_LK) else float("nan")

    points = tuple(it.point(seed) for it in found)
    return Exposure(points, _interval(SummedMeasure(counts_NK, mean_excess), seed))


def _excess(sums_LK: Numbers) -> Numbers:
    """own − right − perfect, each for a token; NaN without texts."""
    _, own, own_tokens, right, right_tokens, perfect = sums_LK.T
    with np.errstate(divide="ignore", invalid="ignore"):
        excess: Numbers = (own - perfect) / own_tokens - right / right_tokens
    return excess


def _interval(measure: SummedMeasure, seed: int) -> Interval:
    found = bootstrap(measure, seed=seed)
    return replace(found, low=found.low - RESOLUTION, high=found.high + RESOLUTION)


def _drawn(
    model: StepModel, prompts: Sequence[Tokens], length: int, seed: int, what: str, *, end: bool = False
) -> list[Tokens]:
    """One text of the model after each prompt; with its EOS only if `end` asks for it."""
    seed = Random(f"{seed} {what}").getrandbits(60)
    said = generate(model, list(prompts), Sample(), max_new_tokens=length, seed=seed, batch_size=ROWS)
    return [tuple(out.tokens[:-1] if out.finish_reason == "eos" and not end else out.tokens) for out in said]


def _logps(model: StepModel, prompts: Sequence[Tokens], rows: Sequence[Tokens]) -> list[list[float]]:
    """log p of every token of each row; of an empty row none."""
    full = [n for n, row in enumerate(rows) if row]
    scored = score(model, [prompts[n] for n in full], [rows[n] for n in full]) if full else []
    found: list[list[float]] = [[] for _ in rows]
    for n, it in zip(full, scored, strict=True):
        found[n] = [max(float(logp), LEAST_LOGP) for logp in it.logps]
    return found


@torch.inference_mode()
def _divergences(
    model: StepModel, language: KnownLanguage[Any], rows: Sequence[Sequence[int]]
) -> tuple[Numbers, Numbers]:
    """(N, 1 + longest): KL after 0, 1, … words, NaN after the end; (N,): where a row became impossible."""
    truth, epsilon = FullSupport(language, EPSILON), EPSILON
    if isinstance(language, FullSupport):
        truth, epsilon = language, 1e-9
    kl_NL = np.full((len(rows), 1 + max(map(len, rows))), np.nan)
    left_N = np.full(len(rows), np.inf)
    live, states = list(range(len(rows))), [language.start()] * len(rows)
    step, state = model.start([(language.bos,)] * len(rows))
    for length in range(kl_NL.shape[1]):
        true_NV = np.stack([language.chances(it) for it in states])
        kl_NL[live, length] = _kl(true_NV, step.logp_NV.double().cpu().numpy(), truth.noise, epsilon)
        stay = [place for place, n in enumerate(live) if len(rows[n]) > length]
        if not stay:
            break
        tokens = [rows[live[place]][length] for place in stay]
        for place, token in zip(stay, tokens, strict=True):
            if truth.language.chance(states[place], token) == 0.0:
                left_N[live[place]] = min(left_N[live[place]], length)
        states = [truth.after(states[place], token) for place, token in zip(stay, tokens, strict=True)]
        live = [live[place] for place in stay]
        if len(stay) < len(step.logp_NV):
            state = state.select(torch.tensor(stay, device=step.logp_NV.device))
        step, state = model.step(state, torch.tensor(tokens, device=step.logp_NV.device))
    return kl_NL, left_N


def _kl(true_NV: Numbers, logp_NV: Numbers, noise_V: Numbers, epsilon: float) -> Numbers:
    """KL of each row, both distributions mixed with ε of the noise; 0 · log 0 is 0."""
    p_NV, q_NV = ((1 - epsilon) * it + epsilon * noise_V for it in (true_NV, np.exp(logp_NV)))
    with np.errstate(divide="ignore", invalid="ignore"):
        kl_N: Numbers = np.where(p_NV > 0, p_NV * (np.log(p_NV) - np.log(q_NV)), 0.0).sum(axis=1)
    return kl_N


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
