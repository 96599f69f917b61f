"""What a generated text is worth beside the right one: rewards from 0 to 1, or a function of one's own.

    bleu          sentence BLEU of up to 4-grams, smoothed where a count is 0, /100
    chrf          character n-gram F-score, /100
    exact_match   1 where both are the same, else 0
    module:name   any Python function of two texts, (said, wanted) → number; higher is better

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu), for single sentences as Chen & Cherry 2014, §3
(papers.bib: chen2014systematic), have it and sacrebleu computes it; Popović 2015, eq. 1
(papers.bib: popovic2015chrf).

A function is imported when a run begins that names it, never when a recipe is only read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from unspool.config import unknown

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
    """Refuse a reward that is neither known nor the name of a function."""
    if name not in REWARDS and ":" not in name:
        said = unknown(name, list(REWARDS), "reward")
        raise ValueError(f"{said}; or name a Python function, as in module:function")


def reward_of(name: str) -> Reward:
    """The reward of that name; a function of one's own is imported now."""
    check_name(name)
    if name in REWARDS:
        return REWARDS[name]
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except ImportError as error:
        raise ValueError(
            f"reward {name!r}: the module {module!r} cannot be imported ({error}): put its folder "
            "on PYTHONPATH"
        ) from error
    except AttributeError:
        raise ValueError(f"reward {name!r}: the module {module!r} has no {function!r}") from None
    if not callable(found):
        raise ValueError(f"reward {name!r} is {found!r:.60}, but must be a function of two texts")
    return _guarded(name, found)


def _guarded(name: str, function: Any) -> Reward:
    """The function, whose mistakes are told in one line."""

    def reward(said: str, wanted: str) -> float:
        asked = f"said {said!r:.60} where {wanted!r:.60} was wanted"
        try:
            value = float(function(said, wanted))
        except Exception as error:
            raise ValueError(
                f"the reward {name!r} failed with {type(error).__name__}: {error} ({asked})"
            ) from error
        if not math.isfinite(value):
            raise ValueError(f"the reward {name!r} is {value}, but must be a finite number ({asked})")
        return value

    return reward
