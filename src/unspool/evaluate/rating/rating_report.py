"""Report of human ratings: means or strengths of systems with intervals, and the agreement of raters.

Scores: the mean of each system with a bootstrap interval over items, and a paired test of every two systems
(approximate randomisation over prompts). Preferences: wins, ties and losses, and Bradley–Terry strengths with
bootstrap intervals over items. Both: Krippendorff's α, nominal and ordinal. The intervals cover other items
of the same kind, not other raters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unspool.arguments import shown
from unspool.evaluate.rating.answers import Answer
from unspool.evaluate.rating.rater_agreement import alpha_measure, strengths
from unspool.evaluate.rating.rating_set import Key, RatingSet
from unspool.evaluate.significance import (
    SAMPLES,
    Counts,
    Interval,
    PairedTest,
    approximate_randomisation,
    bootstrap,
    check_draws,
    mean_of,
    ratio_of,
    resample_counts,
)

LEVEL = 0.95


@dataclass(frozen=True)
class SystemRating:
    """Ratings of one system."""

    system: str
    answers: int
    counts: Mapping[str, int]
    """Number of each score, or of preferences "won", "tied" and "lost"."""
    value: Interval
    """Mean score, or Bradley–Terry strength (geometric mean 1)."""


@dataclass(frozen=True)
class RatingReport:
    """Results of a rating set."""

    scale: str
    items: int
    answers: int
    raters: Mapping[str, int]
    """Rater → number of answered items."""
    systems: tuple[SystemRating, ...]
    """Best first."""
    alphas: Mapping[str, Interval]
    """Krippendorff's α, "nominal" and "ordinal"; empty if no item has two ratings or all are equal."""
    pairs: Mapping[tuple[str, str], PairedTest]
    """Scores: tests of the difference of every two systems on their shared prompts."""


def report(ratings: RatingSet, *, samples: int = SAMPLES, seed: int = 0) -> RatingReport:
    """Read the key and the answers, and compute the report."""
    if not isinstance(ratings, RatingSet):
        raise TypeError(f"{shown(ratings)} is not a RatingSet: load one with RatingSet.load(folder)")
    samples, seed = check_draws(samples, seed)
    answers, key = ratings.answers(), ratings.key()
    if not answers:
        raise ValueError(f"{ratings.folder} has no answers yet")
    summarise = _scores if ratings.scale.texts == 1 else _preferences
    systems, pairs = summarise(answers, key, samples, seed)
    return RatingReport(
        scale=ratings.scale.name,
        items=len(ratings.items),
        answers=len(answers),
        raters=dict(sorted(Counter(answer.rater for answer in answers).items())),
        systems=tuple(sorted(systems, key=lambda rating: -rating.value.value)),
        alphas=_alphas(answers, list(ratings.scale.choices), samples, seed),
        pairs=pairs,
    )


Summary = tuple[list[SystemRating], dict[tuple[str, str], PairedTest]]


def _scores(answers: Sequence[Answer], key: Key, samples: int, seed: int) -> Summary:
    scores: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    prompts: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        origin = key.items[answer.item]
        for system in origin.systems[0]:
            scores[system][answer.item].append(int(answer.choice))
            prompts[system][origin.prompt].append(int(answer.choice))
    ratings_by_system = []
    for system, by_item in scores.items():
        item_scores = list(by_item.values())
        mean = ratio_of([sum(item) for item in item_scores], [len(item) for item in item_scores])
        counts = Counter(str(score) for item in item_scores for score in item)
        ratings_by_system.append(
            SystemRating(
                system,
                counts.total(),
                {choice: counts[choice] for choice in ("0", "1", "2")},
                bootstrap(mean, samples=samples, level=LEVEL, seed=seed),
            )
        )
    pairs = {}
    for a, b in combinations([system for system in key.systems if system in prompts], 2):
        shared = sorted(prompts[a].keys() & prompts[b].keys())
        if shared:
            means = (
                mean_of([float(np.mean(prompts[system][index])) for index in shared]) for system in (a, b)
            )
            pairs[a, b] = approximate_randomisation(*means, samples=samples, seed=seed)
    return ratings_by_system, pairs


def _preferences(answers: Sequence[Answer], key: Key, samples: int, seed: int) -> Summary:
    index = {system: position for position, system in enumerate(key.systems)}
    won = {item: np.zeros((len(index),) * 2) for item in {answer.item for answer in answers}}
    ties: Counter[str] = Counter()
    for answer in answers:
        share = {"a": 1.0, "=": 0.5, "b": 0.0}[answer.choice]
        for left in key.items[answer.item].systems[0]:
            for right in key.items[answer.item].systems[1]:
                won[answer.item][index[left], index[right]] += share
                won[answer.item][index[right], index[left]] += 1 - share
                ties.update([left, right] if answer.choice == "=" else [])
    rows = list(won.values())
    for left, right in key.ties:
        tie_SS = np.zeros((len(index),) * 2)
        tie_SS[index[left], index[right]] = tie_SS[index[right], index[left]] = 0.5
        ties.update([left, right])
        rows.append(tie_SS)
    wins_NSS = np.array(rows)
    total_SS = wins_NSS.sum(axis=0)
    compared = [system for system in key.systems if (total_SS + total_SS.T)[index[system]].any()]
    kept = [index[system] for system in compared]
    wins_NSS, total_SS = wins_NSS[:, kept][:, :, kept], total_SS[kept][:, kept]
    point_S, drawn_BS = strengths(total_SS), _resample_strengths(wins_NSS, samples, seed)
    ratings_by_system = []
    for position, system in enumerate(compared):
        tied = ties[system]
        counts = {
            "won": round(total_SS[position].sum() - tied / 2),
            "tied": tied,
            "lost": round(total_SS[:, position].sum() - tied / 2),
        }
        low, high = np.quantile(drawn_BS[:, position], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        value = Interval(float(point_S[position]), float(low), float(high), LEVEL)
        ratings_by_system.append(SystemRating(system, sum(counts.values()), counts, value))
    return ratings_by_system, {}


def _resample_strengths(wins_NSS: Counts, samples: int, seed: int) -> Counts:
    """Return strengths of resampled items (B, S), without samples that do not connect all systems."""
    drawn = []
    for times_BN in resample_counts(len(wins_NSS), samples, seed):
        for wins_SS in np.einsum("bn,nij->bij", times_BN, wins_NSS):
            with suppress(ValueError):
                drawn.append(strengths(wins_SS))
    return np.array(drawn) if drawn else strengths(wins_NSS.sum(axis=0))[None]


def _alphas(answers: Sequence[Answer], choices: list[str], samples: int, seed: int) -> dict[str, Interval]:
    ratings: dict[str, list[str]] = defaultdict(list)
    for answer in answers:
        ratings[answer.item].append(answer.choice)
    units = [origin for origin in ratings.values() if len(origin) > 1]
    if len({choice for origin in units for choice in origin}) < 2:
        return {}
    return {
        level: bootstrap(alpha_measure(units, choices, level=level), samples=samples, level=LEVEL, seed=seed)
        for level in ("nominal", "ordinal")
    }
