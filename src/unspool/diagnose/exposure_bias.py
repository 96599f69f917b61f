"""Exposure bias: how much worse a model predicts after its own tokens than after correct ones.

On text, with a reference y, own tokens ŷ ~ p̂, and a second reference y′ ~ p̂ drawn from the model:

    gap_y(l)  = 1/s Σ_{j ≤ s} [ −log p̂(y_{l+j} | x, ŷ_{≤l}) + log p̂(y_{l+j} | x, y_{≤l}) ]
    excess(l) = E gap_y(l) − E gap_y′(l)

gap_y is above 0 even for a perfect model, because y continues another prefix than ŷ. If p̂ = p*, y and y′
have the same distribution and the excess is 0. For the same reason both are cut to the shorter length.

With a known truth p* (u uniform over the words and EOS):

    D(l)      = E_{prefixes of l words} KL( (1−ε)p* + εu ‖ (1−ε)p̂ + εu )
    excess(l) = gap(l) = D_own(l) − D_right(l)

Mixing in ε·u keeps KL finite and never raises it; it is 0 for p̂ = p*. After a word that is impossible in the
language, p* stays as it was before that word (`FullSupport`), so impossible texts still count. `possible` is
D_own over the texts that are still possible; it shows how much of the gap depends on this convention. A
language with full support (data with `noise`) does not need the convention; there ε is 1e-9.

He et al. 2021, §3–4 (papers.bib: he2021exposure) compare the same divergences: their EB-C is the quotient.
Bengio et al. 2015, §1, for the problem (papers.bib: bengio2015scheduled).
Symbols: x `prompt`, s `span`, y `right`, ŷ `own`, y′ `references`, ε `EPSILON`.

The excess on text is not a proof: if the model's texts depend on their prefix more (less) than real text, the
excess is below (above) 0 without exposure bias. The known truth does not have this limit. Intervals are 95 %
bootstrap intervals over texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unspool.arguments import as_int, items
from unspool.data.known_languages.known_language import FullSupport, KnownLanguage
from unspool.decode.generate import generate
from unspool.decode.lockstep import check_model
from unspool.decode.score import read_steps, score
from unspool.decode.search import Sample
from unspool.evaluate.known_truth import check_language
from unspool.evaluate.significance import Interval, SummedMeasure, bootstrap
from unspool.evaluate.teacher_forcing import token_pairs
from unspool.interfaces import StepModel

Tokens = tuple[int, ...]
Numbers = NDArray[np.float64]
MAX_LENGTH = 100_000
LENGTHS = (1, 2, 4, 8, 16, 32)
SPAN = 8
ROWS = 256
EPSILON = 0.01
LEAST_LOGP = -30.0
"""Lower bound of log-probabilities, which keeps the excess finite."""
RESOLUTION = 1e-6
"""Rounding of float32 log-probabilities, in nats: intervals are wider by it."""


@dataclass(frozen=True)
class ExposurePoint:
    """Losses after `length` tokens."""

    length: int
    right: float
    """Nats per token after correct tokens: loss of the next tokens, or divergence from the truth."""
    own: float
    """Nats per token after the model's own tokens."""
    texts: int
    """Number of texts of the model with this length."""
    perfect: float = 0.0
    """Gap of a perfect model: 0 with a known truth."""
    interval: Interval | None = None
    lost: float | None = None
    """Share of the model's texts that are impossible by then; None without a known truth."""
    possible: float | None = None
    """`own` over the texts that are still possible; None without a known truth or such a text."""

    @property
    def gap(self) -> float:
        """Loss after own tokens minus loss after correct tokens."""
        return self.own - self.right

    @property
    def excess(self) -> float:
        """Gap minus that of a perfect model."""
        return self.gap - self.perfect


@dataclass(frozen=True)
class Exposure:
    """Gap and excess by length."""

    points: tuple[ExposurePoint, ...]
    interval: Interval | None = None
    """Interval of the mean excess."""

    @property
    def gap(self) -> float:
        """Mean over all texts and lengths."""
        return self._mean([point.gap for point in self.points])

    @property
    def excess(self) -> float:
        """Mean over all texts and lengths: the exposure bias, 0 for a perfect model."""
        return self._mean([point.excess for point in self.points])

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        summary = f"excess {show_nats(self.excess)} nats"
        if self.interval is None:
            return summary
        low, high = self.interval.low, self.interval.high
        summary += f" (95 % interval {show_nats(low)} to {show_nats(high)})"
        if low <= 0 <= high:
            return f"{summary}: no exposure bias is seen, a perfect model could show the same"
        if low > 0:
            return f"{summary}: the model does worse after its own tokens than a perfect model would"
        return f"{summary}: the model loses less after its own tokens than a perfect model would"

    def _mean(self, values: Sequence[float]) -> float:
        texts = [point.texts for point in self.points]
        return float(np.average(values, weights=texts))


def show_nats(value: float) -> str:
    """Four decimals; a negative number that rounds to zero has no sign."""
    return f"{round(value, 4) + 0.0:.4f}"


def exposure(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    lengths: Sequence[int] = LENGTHS,
    *,
    span: int = SPAN,
    seed: int = 0,
) -> Exposure:
    """Measure exposure bias on texts: pairs of a prompt (or source) and its continuation, as token ids.

    Sampled continuations keep EOS only if some given ones end with it.
    """
    lengths, span, seed = _check_arguments(model, lengths, span, seed)
    longest = max(lengths) + span
    pairs = [(prompt, right[:longest]) for prompt, right in token_pairs(texts) if len(right) > min(lengths)]
    if not pairs:
        raise ValueError(f"no text has more than {min(lengths)} tokens after its prompt: give longer texts")
    prompts = [prompt for prompt, _ in pairs]
    eos_ids = frozenset() if model.tokenizer is None else frozenset(model.tokenizer.eos_ids)
    keep_eos = any(right[-1] in eos_ids for _, right in pairs)
    own = _sample(model, prompts, max(lengths), seed, "own")
    references = _sample(
        model, prompts, max(len(right) for _, right in pairs), seed, "reference", keep_eos=keep_eos
    )
    rows = []
    for (prompt, right), own_tokens, reference in zip(pairs, own, references, strict=True):
        common = min(len(right), len(reference))
        rows.append((prompt, own_tokens, right[:common], reference[:common]))
    counts: dict[int, Numbers] = {}
    full_logps = [_logps(model, [row[0] for row in rows], [row[which] for row in rows]) for which in (2, 3)]
    for length in sorted(set(lengths)):
        usable = [
            n
            for n, (_, own_tokens, right, _) in enumerate(rows)
            if len(own_tokens) >= length and len(right) > length
        ]
        if not usable:
            continue
        counts[length] = np.zeros((len(rows), 6))
        after = []
        for which in (2, 3):
            tokens = [(*rows[n][1][:length], *rows[n][which][length : length + span]) for n in usable]
            after.append(_logps(model, [rows[n][0] for n in usable], tokens))
        for row, n in enumerate(usable):
            count = len(after[0][row]) - length
            own_loss, own_perfect = (-sum(logps[row][length:]) for logps in after)
            right_loss, right_perfect = (-sum(logps[n][length : length + span]) for logps in full_logps)
            counts[length][n] = (1.0, own_loss, count, right_loss, count, own_perfect - right_perfect)
    if not counts:
        raise ValueError("the model ends all its texts at once: there are no own tokens to continue from")
    points = tuple(_point(length, counts_NK, seed) for length, counts_NK in counts.items())
    return Exposure(points, _interval(seed, *counts.values()))


def true_exposure(
    model: StepModel,
    language: KnownLanguage[Any],
    lengths: Sequence[int] = LENGTHS,
    *,
    texts: int = 256,
    seed: int = 0,
) -> Exposure:
    """Measure exposure bias on an artificial language, whose tokens the model must use."""
    lengths, texts, seed = _check_arguments(model, lengths, texts, seed)
    check_language(model, language)
    rng, longest = Random(seed), max(lengths)
    right = [language.sample(rng)[:longest] for _ in range(texts)]
    own = _sample(model, [(language.bos,)] * texts, longest, seed, "own")
    right_NL, _ = _divergences(model, language, right)
    own_NL, impossible_at_N = _divergences(model, language, own)
    points, counts = [], []
    for length in sorted(set(lengths)):
        if length >= min(right_NL.shape[1], own_NL.shape[1]):
            continue
        own_N, right_N = own_NL[:, length], right_NL[:, length]
        has_own_N, has_right_N = ~np.isnan(own_N), ~np.isnan(right_N)
        columns = (has_own_N, np.nan_to_num(own_N), has_own_N, np.nan_to_num(right_N), has_right_N)
        counts.append(np.stack([*columns, np.zeros(texts)], axis=1).astype(float))
        possible_N = has_own_N & (impossible_at_N >= length)
        points.append(
            replace(
                _point(length, counts[-1], seed),
                lost=float(np.mean(impossible_at_N < length)),
                possible=float(own_N[possible_N].mean()) if possible_N.any() else None,
            )
        )
    if not points:
        raise ValueError("all texts of the model are shorter than lengths: give shorter lengths")
    return Exposure(tuple(points), _interval(seed, *counts))


def _point(length: int, counts_NK: Numbers, seed: int) -> ExposurePoint:
    """Summarise the counts of each text: texts, own nats and tokens, right nats and tokens, perfect nats."""
    texts, own, own_tokens, right, right_tokens, perfect = counts_NK.sum(axis=0)
    return ExposurePoint(
        length=length,
        right=float(right / right_tokens),
        own=float(own / own_tokens),
        texts=int(texts),
        perfect=float(perfect / own_tokens),
        interval=_interval(seed, counts_NK),
    )


def _interval(seed: int, *counts: Numbers) -> Interval:
    """Bootstrap the mean of own − right − perfect nats per token over lengths, weighted by texts."""

    def mean_excess(sums_K: Numbers) -> float:
        texts, own, own_tokens, right, right_tokens, perfect = sums_K.reshape(len(counts), 6).T
        used = (own_tokens > 0) & (right_tokens > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = (own - perfect) / own_tokens - right / right_tokens
        return float(np.average(excess[used], weights=texts[used])) if used.any() else float("nan")

    interval = bootstrap(SummedMeasure(np.concatenate(counts, axis=1), mean_excess), seed=seed)
    return replace(interval, low=interval.low - RESOLUTION, high=interval.high + RESOLUTION)


def _sample(
    model: StepModel, prompts: Sequence[Tokens], length: int, seed: int, what: str, *, keep_eos: bool = False
) -> list[Tokens]:
    """Sample one text after each prompt; EOS is removed unless `keep_eos`."""
    seed = Random(f"{seed} {what}").getrandbits(60)
    outputs = generate(model, list(prompts), Sample(), max_new_tokens=length, seed=seed, batch_size=ROWS)
    return [
        tuple(out.tokens[:-1] if out.finish_reason == "eos" and not keep_eos else out.tokens)
        for out in outputs
    ]


def _logps(model: StepModel, prompts: Sequence[Tokens], rows: Sequence[Tokens]) -> list[list[float]]:
    """Return log p of every token of each row; [] for an empty row."""
    nonempty = [n for n, row in enumerate(rows) if row]
    scores = score(model, [prompts[n] for n in nonempty], [rows[n] for n in nonempty]) if nonempty else []
    logps: list[list[float]] = [[] for _ in rows]
    for n, text_score in zip(nonempty, scores, strict=True):
        logps[n] = [max(float(logp), LEAST_LOGP) for logp in text_score.logps]
    return logps


@torch.inference_mode()
def _divergences(
    model: StepModel, language: KnownLanguage[Any], rows: Sequence[Sequence[int]]
) -> tuple[Numbers, Numbers]:
    """Return KL after 0, 1, … words (N, 1 + longest), and the position where each row becomes impossible."""
    truth, epsilon = FullSupport(language, EPSILON), EPSILON
    if isinstance(language, FullSupport):
        truth, epsilon = language, 1e-9
    kl_NL = np.full((len(rows), 1 + max(map(len, rows))), np.nan)
    impossible_at_N = np.full(len(rows), np.inf)
    states = [language.start()] * len(rows)
    for length, (active, step) in enumerate(read_steps(model, [(language.bos,)] * len(rows), rows)):
        true_NV = np.stack([language.probabilities(states[row]) for row in active])
        kl_NL[active, length] = _kl(true_NV, step.logp_NV.double().cpu().numpy(), truth.noise, epsilon)
        for row in active:
            if len(rows[row]) > length:
                token = rows[row][length]
                if truth.language.probability(states[row], token) == 0.0:
                    impossible_at_N[row] = min(impossible_at_N[row], length)
                states[row] = truth.after(states[row], token)
    return kl_NL, impossible_at_N


def _kl(true_NV: Numbers, logp_NV: Numbers, noise_V: Numbers, epsilon: float) -> Numbers:
    """Return KL of each row, with ε of the noise mixed into both distributions and 0 · log 0 = 0."""
    p_NV, q_NV = (
        (1 - epsilon) * probabilities_NV + epsilon * noise_V
        for probabilities_NV in (true_NV, np.exp(logp_NV))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        kl_N: Numbers = np.where(p_NV > 0, p_NV * (np.log(p_NV) - np.log(q_NV)), 0.0).sum(axis=1)
    return kl_N


def _check_arguments(
    model: StepModel, lengths: Sequence[int], count: int, seed: int
) -> tuple[tuple[int, ...], int, int]:
    """Check lengths, `span` or `texts`, and the seed."""
    check_model(model)
    given = items("lengths", lengths, "whole numbers, each at least 1")
    if not given:
        raise ValueError("lengths is empty: give whole numbers, each at least 1")
    advice = "It counts tokens or texts."
    checked = tuple(as_int("lengths", length, at_least=1, advice="Each counts tokens.") for length in given)
    if max(checked) > MAX_LENGTH:
        raise ValueError(f"lengths has {max(checked)}, but must be at most {MAX_LENGTH}")
    return (
        checked,
        as_int("span or texts", count, at_least=1, advice=advice),
        as_int("seed", seed, at_least=0, advice="The same seed gives the same texts."),
    )
