"""Calibration: expected calibration error (ECE) and reliability diagram of a model's confidence.

    ECE = Σ_b (n_b / n) · | accuracy_b − confidence_b |       over bins b of equal width

Naeini et al. 2015 (papers.bib: naeini2015obtaining); Guo et al. 2017, eq. 3 and its reliability diagram
(papers.bib: guo2017calibration). At every token of a text the model's choice is its most probable token, its
confidence that token's probability, and it is right if the text has that token.

The ECE of a finite sample is above 0 even for a perfectly calibrated model. A simulation, in which each
choice is right with a probability equal to its confidence, gives a null interval. Only an ECE above it counts
as miscalibration. It counts as over- or underconfidence only if the mean confidence is further from the
accuracy than chance allows.

A confidence of 1 is in the last bin. Compare ECE only for equal numbers of bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unspool.arguments import as_int, as_number, items, shown
from unspool.decode.lockstep import check_model
from unspool.evaluate.significance import Interval
from unspool.evaluate.teacher_forcing import Window, forced, paired, read, token_ids, token_pairs
from unspool.interfaces import StepModel

BINS = 15
WELL_CALIBRATED = 0.02
"""Null intervals below this ECE are narrow enough to call a model well calibrated."""
NULL_SAMPLES, NULL_DRAWS = (200, 1000), 50_000_000
"""Minimum and maximum number of simulated samples, and the maximum number of draws."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ConfidenceBin:
    """The choices with a confidence between low and high."""

    low: float
    high: float
    count: int
    confidence: float
    """Mean confidence; NaN for an empty bin."""
    accuracy: float
    """Share of correct choices; NaN for an empty bin."""


@dataclass(frozen=True)
class Calibration:
    """Agreement of confidence and accuracy."""

    ece: float
    """Mean |accuracy − confidence| over all choices."""
    worst: float
    """Largest |accuracy − confidence| of a bin."""
    confidence: float
    accuracy: float
    count: int
    bins: tuple[ConfidenceBin, ...]
    null: Interval
    """ECE of a perfectly calibrated model with these confidences: mean and 95 % interval."""
    chance: float
    """95 % of perfectly calibrated samples have |confidence − accuracy| below this."""

    @property
    def overconfidence(self) -> float:
        """Mean confidence minus accuracy."""
        return self.confidence - self.accuracy

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        summary = (
            f"ECE {self.ece:.3f} (by chance, if perfectly calibrated: {self.null.low:.3f} to "
            f"{self.null.high:.3f}): {self.accuracy:.1%} right at a confidence of {self.confidence:.1%}"
        )
        if self.ece <= self.null.high:
            if self.null.high < WELL_CALIBRATED:
                return f"{summary}, well calibrated"
            return f"{summary}, no miscalibration is seen in {self.count:,} tokens"
        if abs(self.overconfidence) <= max(self.chance, self.ece / 2):
            return f"{summary}, too sure in some contexts and not sure enough in others"
        return f"{summary}, {'overconfident' if self.overconfidence > 0 else 'underconfident'}"


def calibration(confidences: Sequence[float], correct: Sequence[bool], *, bins: int = BINS) -> Calibration:
    """Measure the calibration of choices, from the probability of each and whether it was correct."""
    given = items("confidences", confidences, "a list of probabilities")
    right = items("correct", correct, "a list of True or False")
    if len(given) != len(right) or not given:
        raise ValueError(
            f"{len(given)} confidences but {len(right)} outcomes: give both for each of one or more choices"
        )
    advice = "A confidence is a probability."
    p_N = np.array(
        [as_number("a confidence", confidence, at_least=0, at_most=1, advice=advice) for confidence in given]
    )
    if not all(isinstance(is_right, bool | np.bool_) for is_right in right):
        raise TypeError(f"correct is {shown(correct)}, but must hold True or False for each choice")
    return _bin(p_N.astype(float), np.array(right, dtype=float), bins)


def token_calibration(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    sources: Sequence[str | Sequence[int]] | None = None,
    *,
    bins: int = BINS,
    context: int | None = None,
) -> Calibration:
    """Measure the calibration of a model's most probable token at each position of texts.

    Texts are strings or token ids. An encoder–decoder needs `sources`, one per text. Texts longer than the
    context are read as for perplexity.
    """
    return _measure_windows(model, forced(model, texts, sources, context=context), bins)


def pair_calibration(
    model: StepModel, texts: Sequence[tuple[Sequence[int], Sequence[int]]], *, bins: int = BINS
) -> Calibration:
    """Like `token_calibration`, but only for the tokens after a prompt (or source); both are token ids."""
    check_model(model)
    pairs = token_pairs(texts)
    for index, (prompt, right) in enumerate(pairs):
        token_ids(model, prompt, index, "source" if model.is_encoder_decoder else "text")
        token_ids(model, right, index)
    return _measure_windows(model, paired(model, pairs, cut=True), bins)


def _measure_windows(model: StepModel, parts: Sequence[Window], bins: int) -> Calibration:
    confidences, right = [], []
    for seen in read(model, parts):
        logp_M, token_M = seen.logp_MV.max(dim=-1)
        confidences.append(logp_M.double().exp().clamp(0, 1).cpu().numpy())
        right.append((token_M == seen.token_M).double().cpu().numpy())
    return _bin(np.concatenate(confidences), np.concatenate(right), bins)


def _bin(p_N: Numbers, right_N: Numbers, bins: int) -> Calibration:
    bins = as_int("bins", bins, at_least=1, advice="15 is usual.")
    if not np.isfinite(p_N).all():
        raise ValueError("the model's probabilities contain NaN: check its weights")
    bin_N = np.minimum((p_N * bins).astype(int), bins - 1)
    results = []
    for b in range(bins):
        in_bin = bin_N == b
        count = int(in_bin.sum())
        means = (float(p_N[in_bin].mean()), float(right_N[in_bin].mean())) if count else (float("nan"),) * 2
        results.append(ConfidenceBin(b / bins, (b + 1) / bins, count, *means))
    gaps = [(bin_.count, abs(bin_.accuracy - bin_.confidence)) for bin_ in results if bin_.count]
    null, chance = _null(p_N, bin_N, bins)
    return Calibration(
        ece=sum(count * gap for count, gap in gaps) / len(p_N),
        worst=max(gap for _, gap in gaps),
        confidence=float(p_N.mean()),
        accuracy=float(right_N.mean()),
        count=len(p_N),
        bins=tuple(results),
        null=null,
        chance=chance,
    )


def _null(p_N: Numbers, bin_N: NDArray[np.int_], bins: int) -> tuple[Interval, float]:
    """Simulate ECE and |confidence − accuracy| of a perfectly calibrated model."""
    rng, count = np.random.default_rng(0), len(p_N)
    samples = int(np.clip(NULL_DRAWS // count, *NULL_SAMPLES))
    sums_B = np.bincount(bin_N, weights=p_N, minlength=bins)
    ece, difference = np.empty(samples), np.empty(samples)
    for sample in range(samples):
        gaps_B = np.bincount(bin_N, weights=rng.random(count) < p_N, minlength=bins) - sums_B
        ece[sample], difference[sample] = np.abs(gaps_B).sum() / count, abs(gaps_B.sum()) / count
    low, high = np.quantile(ece, [0.025, 0.975])
    return Interval(float(ece.mean()), float(low), float(high), 0.95), float(np.quantile(difference, 0.95))
