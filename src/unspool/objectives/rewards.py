"""What a generated text is worth beside the right one: rewards from 0 to 1, or a function of one's own.

    bleu          sentence BLEU of up to 4-grams, smoothed where a count is 0, /100
    chrf          character n-gram F-score, /100
    exact_match   1 where both are the same, else 0
    module:name   any Python function of two texts, (said, wanted) → number; higher is better

Papineni et al. 2002, §2.3 (papers.bib: papineni2002bleu), for single sentences as Chen & Cherry 2014, §3
(papers.bib: chen2014systematic), have it and sacrebleu computes it; Popović 2015, eq. 1
(papers.bib: popovic2015chrf).

A recipe may name a function only if the user trusts it (`trust_code`) or if an installed package offers it
as an entry point of the group `unspool.plugins`. A function is imported when a run begins, never when a
recipe is only read.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from unspool.config import unknown

Reward = Callable[[str, str], float]
FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""A function by its module: names of Python, no path of a file."""
PLUGINS = "unspool.plugins"
"""The group of entry points by which an installed package offers functions to recipes."""
LONGEST = 200
"""Characters of an error that are told."""


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


def _plugins() -> dict[str, str]:
    """Entry point name → module:function, of all installed packages. Nothing is imported."""
    return {it.name: it.value for it in entry_points(group=PLUGINS)}


def check_name(name: str) -> None:
    """Refuse a reward that is neither known nor the name of a function."""
    if name not in REWARDS and not FUNCTION.fullmatch(name) and name not in _plugins():
        said = unknown(name, list(REWARDS), "reward")
        raise ValueError(f"{said}; or name a Python function, as in module:function")


def runs_code(name: str) -> bool:
    """Whether the name would import a function that no installed package offers to recipes."""
    if name in REWARDS:
        return False
    offered = _plugins()
    return name not in offered and name not in offered.values()


def reward_of(name: str) -> Reward:
    """The reward of that name. A Python function is imported now: the caller has checked `runs_code`."""
    check_name(name)
    if name in REWARDS:
        return REWARDS[name]
    target = name if FUNCTION.fullmatch(name) else _plugins()[name]
    module, _, function = target.partition(":")
    try:
        found = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"reward {name!r}: the module {module!r} cannot be imported ({error}): put its folder "
            "on PYTHONPATH"
        ) from error
    except AttributeError as error:
        if module in sys.modules:
            raise ValueError(f"reward {name!r}: the module {module!r} has no {function!r}") from None
        raise ValueError(_broken(name, module, error)) from error
    except (Exception, SystemExit) as error:
        raise ValueError(_broken(name, module, error)) from error
    if not callable(found):
        raise ValueError(f"reward {name!r} is {found!r:.60}, but must be a function of two texts")
    return _guarded(name, found)


def _broken(name: str, module: str, error: BaseException) -> str:
    return f"reward {name!r}: the module {module!r} failed when it was imported, with {_line(error)}"


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
            raise ValueError(f"the reward {name!r} failed with {_line(error)} ({asked})") from error
        if not isinstance(value, int | float):
            raise ValueError(f"the reward {name!r} is {value!r:.60}, but must be a number ({asked})")
        if not math.isfinite(value):
            raise ValueError(f"the reward {name!r} is {value}, but must be a finite number ({asked})")
        return float(value)

    return reward


def _line(error: BaseException) -> str:
    """An error in one line, and not a long one."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"
