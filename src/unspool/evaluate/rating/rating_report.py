"""What raters said, by system: means or strengths with intervals, and how far the raters agree.

Of scores: the mean of each system with a bootstrap interval over items, and for every two systems how likely
chance alone makes such a difference (approximate randomisation over prompts). Of preferences: wins, ties and
losses, and Bradley–Terry strengths with bootstrap intervals over items. Of both: Krippendorff's α, nominal
and ordinal. The intervals are about other items of the same kind, not about other raters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unspool.decode.arguments import shown
from unspool.evaluate.rating.answers import Answer
from unspool.evaluate.rating.rater_agreement import alpha_measure, strengths
from unspool.evaluate.rating.rating_set import Key, RatingSet
from unspool.evaluate.significance import (
    SAMPLES,
    Interval,
    PairedTest,
    approximate_randomisation,
    bootstrap,
    draws,
    redrawn,
)
from unspool.evaluate.summed_measure import Counts, mean_of, ratio_of

LEVEL = 0.95


@dataclass(frozen=True)
class SystemRating:
    """What was said of one system."""

    system: str
    answers: int
    counts: Mapping[str, int]
    """How often each score was given; of preferences "won", "tied" and "lost"."""
    value: Interval
    """The mean score; of preferences the strength (1 is the average, geometrically)."""


@dataclass(frozen=True)
class RatingReport:
    """Everything about a set's answers."""

    scale: str
    items: int
    answers: int
    raters: Mapping[str, int]
    """How many items each has answered."""
    systems: tuple[SystemRating, ...]
    """The best first."""
    alphas: Mapping[str, Interval]
    """Krippendorff's α, "nominal" and "ordinal"; none where no item has two ratings that could differ."""
    pairs: Mapping[tuple[str, str], PairedTest]
    """Of scores: the difference of means of every two systems on the prompts that both were rated on."""


def report(ratings: RatingSet, *, samples: int = SAMPLES, seed: int = 0) -> RatingReport:
    """Open the key, and sum up."""
    if not isinstance(ratings, RatingSet):
        raise TypeError(f"{shown(ratings)} is no RatingSet: RatingSet.load(folder) gives one")
    samples, seed = draws(samples, seed)
    answers, key = ratings.answers(), ratings.key()
    if not answers:
        raise ValueError(f"nobody has answered anything in {ratings.folder} yet")
    told = _scores if ratings.scale.texts == 1 else _preferences
    systems, pairs = told(answers, key, samples, seed)
    return RatingReport(
        scale=ratings.scale.name,
        items=len(ratings.items),
        answers=len(answers),
        raters=dict(sorted(Counter(it.rater for it in answers).items())),
        systems=tuple(sorted(systems, key=lambda it: -it.value.value)),
        alphas=_alphas(answers, list(ratings.scale.choices), samples, seed),
        pairs=pairs,
    )


Told = tuple[list[SystemRating], dict[tuple[str, str], PairedTest]]


def _scores(answers: Sequence[Answer], key: Key, samples: int, seed: int) -> Told:
    """Means, and differences of means."""
    scores: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    prompts: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for it in answers:
        said = key.items[it.item]
        for system in said.systems[0]:
            scores[system][it.item].append(int(it.choice))
            prompts[system][said.prompt].append(int(it.choice))
    found = []
    for system, by_item in scores.items():
        each = list(by_item.values())
        mean = ratio_of([sum(it) for it in each], [len(it) for it in each])
        counts = Counter(str(score) for it in each for score in it)
        found.append(
            SystemRating(
                system,
                counts.total(),
                {choice: counts[choice] for choice in ("0", "1", "2")},
                bootstrap(mean, samples=samples, level=LEVEL, seed=seed),
            )
        )
    pairs = {}
    for a, b in combinations([it for it in key.systems if it in prompts], 2):
        both = sorted(prompts[a].keys() & prompts[b].keys())
        if both:
            means = (mean_of([float(np.mean(prompts[it][place])) for place in both]) for it in (a, b))
            pairs[a, b] = approximate_randomisation(*means, samples=samples, seed=seed)
    return found, pairs


def _preferences(answers: Sequence[Answer], key: Key, samples: int, seed: int) -> Told:
    """Strengths."""
    place = {system: at for at, system in enumerate(key.systems)}
    won = {item: np.zeros((len(place),) * 2) for item in {it.item for it in answers}}
    ties: Counter[str] = Counter()
    for it in answers:
        share = {"a": 1.0, "=": 0.5, "b": 0.0}[it.choice]
        for left in key.items[it.item].systems[0]:
            for right in key.items[it.item].systems[1]:
                won[it.item][place[left], place[right]] += share
                won[it.item][place[right], place[left]] += 1 - share
                ties.update([left, right] if it.choice == "=" else [])
    rows = list(won.values())
    for left, right in key.ties:
        same = np.zeros((len(place),) * 2)
        same[place[left], place[right]] = same[place[right], place[left]] = 0.5
        ties.update([left, right])
        rows.append(same)
    wins_NSS = np.array(rows)
    total_SS = wins_NSS.sum(axis=0)
    met = [system for system in key.systems if (total_SS + total_SS.T)[place[system]].any()]
    these = [place[system] for system in met]
    wins_NSS, total_SS = wins_NSS[:, these][:, :, these], total_SS[these][:, these]
    point_S, drawn_BS = strengths(total_SS), _redrawn_strengths(wins_NSS, samples, seed)
    found = []
    for at, system in enumerate(met):
        tied = ties[system]
        counts = {
            "won": round(total_SS[at].sum() - tied / 2),
            "tied": tied,
            "lost": round(total_SS[:, at].sum() - tied / 2),
        }
        low, high = np.quantile(drawn_BS[:, at], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        value = Interval(float(point_S[at]), float(low), float(high), LEVEL)
        found.append(SystemRating(system, sum(counts.values()), counts, value))
    return found, {}


def _redrawn_strengths(wins_NSS: Counts, samples: int, seed: int) -> Counts:
    """(B, S); draws in which some systems never met are left out."""
    found = []
    for times_BN in redrawn(len(wins_NSS), samples, seed):
        for wins_SS in np.einsum("bn,nij->bij", times_BN, wins_NSS):
            try:
                found.append(strengths(wins_SS))
            except ValueError:
                continue
    return np.array(found) if found else strengths(wins_NSS.sum(axis=0))[None]


def _alphas(answers: Sequence[Answer], choices: list[str], samples: int, seed: int) -> dict[str, Interval]:
    ratings: dict[str, list[str]] = defaultdict(list)
    for it in answers:
        ratings[it.item].append(it.choice)
    units = [said for said in ratings.values() if len(said) > 1]
    if len({choice for said in units for choice in said}) < 2:
        return {}
    return {
        level: bootstrap(alpha_measure(units, choices, level=level), samples=samples, level=LEVEL, seed=seed)
        for level in ("nominal", "ordinal")
    }
