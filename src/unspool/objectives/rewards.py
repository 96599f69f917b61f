"""Rewards: score a generated text against a reference, from 0 to 1 or by a user's function.

    bleu          sentence BLEU of up to 4-grams, smoothed if a count is 0, /100
    chrf          character n-gram F-score, /100
    exact_match   1 if both are the same, else 0
    module:name   any Python function of two texts, (text, reference) → number; higher is better

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu), for single sentences after Chen & Cherry 2014, §3
(papers.bib: chen2014systematic), computed by sacrebleu; Popović 2015, eq. 1 (papers.bib: popovic2015chrf).

A function must be trusted by the user or belong to an installed plugin (`unspool.plugins`). It is imported
when a run starts, not when a recipe is parsed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from unspool.config import unknown
from unspool.optional_metrics import sacrebleu_metrics
from unspool.plugins import import_object, is_plugin, one_line

Reward = Callable[[str, str], float]


def exact_match(text: str, reference: str) -> float:
    """1 for equal texts."""
    return float(text == reference)


def bleu(text: str, reference: str) -> float:
    """Sentence BLEU, 0 … 1."""
    return float(_metric("BLEU").sentence_score(text, [reference]).score) / 100


def chrf(text: str, reference: str) -> float:
    """chrF, 0 … 1."""
    return float(_metric("CHRF").sentence_score(text, [reference]).score) / 100


REWARDS: dict[str, Reward] = {"bleu": bleu, "chrf": chrf, "exact_match": exact_match}


@cache
def _metric(name: str) -> Any:
    metrics = sacrebleu_metrics()
    # Without effective_order, a sentence of three words would always score 0.
    return metrics.BLEU(effective_order=True) if name == "BLEU" else metrics.CHRF()


def check_reward_name(name: str) -> None:
    """Raise ValueError unless it is a known reward or the name of a Python function."""
    if name not in REWARDS and not is_plugin(name):
        raise ValueError(
            f"{unknown(name, list(REWARDS), 'reward')}; or name a Python function: module:function"
        )


def load_reward(name: str) -> Reward:
    """Return the reward of that name. This imports a Python function: check that the user trusts it first."""
    check_reward_name(name)
    if name in REWARDS:
        return REWARDS[name]
    function = import_object(name, "reward")
    if not callable(function):
        raise ValueError(f"reward {name!r} is {function!r:.60}, but must be a function of two texts")
    return _wrap_plugin(name, function)


def _wrap_plugin(name: str, function: Any) -> Reward:
    """Wrap a user's function so that its errors are reported in one line."""

    def reward(text: str, reference: str) -> float:
        context = f"for {text!r:.60} with the reference {reference!r:.60}"
        try:
            value = function(text, reference)
            value = value.item() if hasattr(value, "item") else value  # of NumPy, or of torch
        except (Exception, SystemExit) as error:
            raise ValueError(f"the reward {name!r} failed with {one_line(error)} ({context})") from error
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"the reward {name!r} is {value!r:.60}, but must be a finite number ({context})")
        return float(value)

    return reward
