"""Calibration: is a model as often right as it says?

    ECE = Σ_b (n_b / n) · | accuracy_b − confidence_b |       over bins b of equal width

Naeini et al. 2015 (papers.bib: naeini2015obtaining); Guo et al. 2017, eq. 3 and its reliability diagram
(papers.bib: guo2017calibration). At every token of a text the model's choice is its most probable token, its
confidence that token's probability, and it is right where the text has that token there.

The ECE of a finite sample is above 0 for a perfectly calibrated model, too. Its null interval comes from
simulation: each choice is right with a probability equal to its confidence. Only an ECE above that interval
is called miscalibration. It is called over- or underconfidence only if the mean confidence is further from
the accuracy than chance allows.

A confidence of exactly 1 is in the last bin. ECE depends on the number of bins: compare only equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unspool.decode.arguments import as_number, as_whole, items, shown
from unspool.decode.combine.lockstep import check_model
from unspool.evaluate.significance import Interval
from unspool.evaluate.teacher_forcing import Window, forced, paired, read, token_ids, token_pairs
from unspool.interfaces import StepModel

BINS = 15
CLOSE = 0.02
"""An ECE below which a model is called well calibrated, if chance alone explains it."""
NULL_SAMPLES, NULL_DRAWS = (200, 1000), 50_000_000
"""Simulated samples: at least and at most so many, within so many draws in all."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class ConfidenceBin:
    """The choices whose confidence lies between low and high."""

    low: float
    high: float
    count: int
    confidence: float
    """Their mean; not a number where there is none."""
    accuracy: float
    """The share of them that is right; not a number where there is none."""


@dataclass(frozen=True)
class Calibration:
    """How confidence and accuracy agree."""

    ece: float
    """The mean distance between them, over all choices."""
    worst: float
    """The largest distance of a bin."""
    confidence: float
    accuracy: float
    count: int
    bins: tuple[ConfidenceBin, ...]
    null: Interval
    """The ECE of a perfectly calibrated model with these confidences: mean and 95 % interval."""
    chance: float
    """95 % of perfectly calibrated samples have |confidence − accuracy| below this."""

    @property
    def overconfidence(self) -> float:
        """Mean confidence minus accuracy: above 0 the model promises more than it keeps."""
        return self.confidence - self.accuracy

    @property
    def verdict(self) -> str:
        """In words."""
        said = (
            f"ECE {self.ece:.3f} (by chance, if perfectly calibrated: {self.null.low:.3f} to "
            f"{self.null.high:.3f}): {self.accuracy:.1%} right at a confidence of {self.confidence:.1%}"
        )
        if self.ece <= self.null.high:
            if self.null.high < CLOSE:
                return f"{said}, well calibrated"
            return f"{said}, no miscalibration is seen in {self.count:,} tokens"
        if abs(self.overconfidence) <= max(self.chance, self.ece / 2):
            return f"{said}, too sure in some places and not sure enough in others"
        return f"{said}, {'overconfident' if self.overconfidence > 0 else 'underconfident'}"


def calibration(confidences: Sequence[float], correct: Sequence[bool], *, bins: int = BINS) -> Calibration:
    """Of choices: the probability given to each, and whether it was right."""
    said = items("confidences", confidences, "a list of probabilities")
    right = items("correct", correct, "a list that says True or False of each choice")
    bins = as_whole("bins", bins, at_least=1, advice="15 is usual.")
    if len(said) != len(right) or not said:
        raise ValueError(
            f"{len(said)} confidences came with {len(right)} outcomes: give both for each choice, of one "
            "choice or more"
        )
    advice = "A confidence is a probability."
    p_N = np.array([as_number("a confidence", it, at_least=0, at_most=1, advice=advice) for it in said])
    if not all(isinstance(it, bool | np.bool_) for it in right):
        raise TypeError(f"correct is {shown(correct)}, but must say True or False of each choice.")
    return _binned(p_N.astype(float), np.array(right, dtype=float), bins)


def token_calibration(
    model: StepModel,
    texts: Sequence[str | Sequence[int]],
    sources: Sequence[str | Sequence[int]] | None = None,
    *,
    bins: int = BINS,
    context: int | None = None,
    batch: int = 8,
) -> Calibration:
    """Of a model's most probable token at every place of texts, strings or token ids.

    An encoder–decoder needs `sources`, one for each text. Long texts are read as for perplexity.
    """
    return _of_windows(model, forced(model, texts, sources, context=context), bins, batch)


def pair_calibration(
    model: StepModel,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    bins: int = BINS,
    batch: int = 8,
) -> Calibration:
    """The same of tokens after a prompt, or of answers to a source, both as token ids: only they count."""
    check_model(model)
    pairs = token_pairs(texts)
    for place, (prompt, right) in enumerate(pairs):
        token_ids(model, prompt, place, "source" if model.is_encoder_decoder else "text")
        token_ids(model, right, place)
    return _of_windows(model, paired(model, pairs, cut=True), bins, batch)


def _of_windows(model: StepModel, parts: Sequence[Window], bins: int, batch: int) -> Calibration:
    bins = as_whole("bins", bins, at_least=1, advice="15 is usual.")
    said, right = [], []
    for seen in read(model, parts, batch=batch):
        logp_M, token_M = seen.logp_MV.max(dim=-1)
        said.append(logp_M.double().exp().clamp(0, 1).cpu().numpy())
        right.append((token_M == seen.token_M).double().cpu().numpy())
    return _binned(np.concatenate(said), np.concatenate(right), bins)


def _binned(p_N: Numbers, right_N: Numbers, bins: int) -> Calibration:
    if not np.isfinite(p_N).all():
        raise ValueError("the model gave probabilities that are no numbers: look for NaN in its weights")
    place_N = np.minimum((p_N * bins).astype(int), bins - 1)
    found = []
    for b in range(bins):
        these = place_N == b
        count = int(these.sum())
        means = (float(p_N[these].mean()), float(right_N[these].mean())) if count else (float("nan"),) * 2
        found.append(ConfidenceBin(b / bins, (b + 1) / bins, count, *means))
    gaps = [(it.count, abs(it.accuracy - it.confidence)) for it in found if it.count]
    null, chance = _null(p_N, place_N, bins)
    return Calibration(
        ece=sum(count * gap for count, gap in gaps) / len(p_N),
        worst=max(gap for _, gap in gaps),
        confidence=float(p_N.mean()),
        accuracy=float(right_N.mean()),
        count=len(p_N),
        bins=tuple(found),
        null=null,
        chance=chance,
    )


def _null(p_N: Numbers, place_N: NDArray[np.int_], bins: int) -> tuple[Interval, float]:
    """ECE and |confidence − accuracy| by chance alone: a choice is right as often as its confidence says."""
    rng, count = np.random.default_rng(0), len(p_N)
    samples = int(np.clip(NULL_DRAWS // count, *NULL_SAMPLES))
    sums_B = np.bincount(place_N, weights=p_N, minlength=bins)
    ece, difference = np.empty(samples), np.empty(samples)
    for sample in range(samples):
        gaps_B = np.bincount(place_N, weights=rng.random(count) < p_N, minlength=bins) - sums_B
        ece[sample], difference[sample] = np.abs(gaps_B).sum() / count, abs(gaps_B.sum()) / count
    low, high = np.quantile(ece, [0.025, 0.975])
    return Interval(float(ece.mean()), float(low), float(high), 0.95), float(np.quantile(difference, 0.95))
