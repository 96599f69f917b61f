"""What a generated text is worth beside the right one: rewards from 0 to 1, or a function of one's own.

    bleu          sentence BLEU of up to 4-grams, smoothed where a count is 0, /100
    chrf          character n-gram F-score, /100
    exact_match   1 where both are the same, else 0
    module:name   any Python function of two texts, (said, wanted) → number; higher is better

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu), for single sentences as Chen & Cherry 2014, §3
(papers.bib: chen2014systematic), have it and sacrebleu computes it; Popović 2015, eq. 1
(papers.bib: popovic2015chrf).

A function needs the user's trust or is an installed plugin (`unspool.plugins`). It is imported when a run
begins, never when a recipe is only read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from unspool.config import unknown
from unspool.plugins import import_object, is_plugin, one_line

Reward = Callable[[str, str], float]


def exact_match(said: str, wanted: str) -> float:
    """1 for equal texts."""
    return float(said == wanted)


def bleu(said: str, wanted: str) -> float:
    """Sentence BLEU, 0 … 1."""
    return float(_metric("BLEU").sentence_score(said, [wanted]).score) / 100


def chrf(said: str, wanted: str) -> float:
    """chrF, 0 … 1."""
    return float(_metric("CHRF").sentence_score(said, [wanted]).score) / 100


REWARDS: dict[str, Reward] = {"bleu": bleu, "chrf": chrf, "exact_match": exact_match}


@cache
def _metric(name: str) -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise ImportError(
            f"the reward {name.lower()} needs the sacrebleu package: pip install unspool[evaluate]"
        ) from error
    # Without it, a sentence of three words would have no 4-gram to match, and a score of 0.
    return metrics.BLEU(effective_order=True) if name == "BLEU" else metrics.CHRF()


def check_name(name: str) -> None:
    """Refuse a reward that is neither known nor the name of a Python function."""
    if name not in REWARDS and not is_plugin(name):
        raise ValueError(
            f"{unknown(name, list(REWARDS), 'reward')}; or name a Python function: module:function"
        )


def reward_of(name: str) -> Reward:
    """Return the reward of that name. A Python function is imported: check that the user trusts it first."""
    check_name(name)
    if name in REWARDS:
        return REWARDS[name]
    function = import_object(name, "reward")
    if not callable(function):
        raise ValueError(f"reward {name!r} is {function!r:.60}, but must be a function of two texts")
    return _guarded(name, function)


def _begin(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")


def _guarded(name: str, function: Any) -> Reward:
    """The function, whose mistakes are told in one line."""

    def reward(said: str, wanted: str) -> float:
        asked = f"said {_begin(said)} where {_begin(wanted)} was wanted"
        try:
            value = function(said, wanted)
            value = value.item() if hasattr(value, "item") else value  # of NumPy, or of torch
        except (Exception, SystemExit) as error:
            raise ValueError(f"the reward {name!r} failed with {one_line(error)} ({asked})") from error
        if not isinstance(value, int | float):
            raise ValueError(f"the reward {name!r} is {value!r:.60}, but must be a number ({asked})")
        if not math.isfinite(value):
            raise ValueError(f"the reward {name!r} is {value}, but must be a finite number ({asked})")
        return float(value)

    return reward
