"""What every shape of a model is asked before it is built."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def one_of(config: Any, **choices: Iterable[str]) -> None:
    """Refuse a word that is not among the choices for its field."""
    for name, known in choices.items():
        value = getattr(config, name)
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown: choose from {', '.join(sorted(known))}")


LARGEST_SIZE = 2**31 - 1


def at_least_one(config: Any, *names: str) -> None:
    """Refuse sizes below 1, or beyond all reason; None stands for a size that follows from the others."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
        if value is not None and value > LARGEST_SIZE:
            raise ValueError(f"{name}={value!r:.40} is more than {LARGEST_SIZE}, the most that is allowed")


def positive(config: Any, *names: str) -> None:
    """Refuse numbers that are not above 0, or not finite."""
    for name in names:
        value = getattr(config, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value} must be above 0, and finite")


def shares(config: Any, *names: str) -> None:
    """Refuse shares of a whole that are negative, or all of it."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value} must be at least 0 and below 1")


def needs(given: Mapping[str, object], why: str) -> None:
    """Refuse what was left out, where something else asks for it."""
    for name, value in given.items():
        if value is None:
            raise ValueError(f"{why} needs {name}: give it a value")


def given(config: Any, kind: type, text: Any) -> None:
    """Refuse to make a model from anything but its own kind of settings, and a tokenizer or none."""
    if not isinstance(config, kind):
        raise TypeError(f"this model is made from {kind.__name__}(…), and {config!r:.80} is none")
    if text is not None and not all(hasattr(text, name) for name in ("encode", "decode", "watch", "eos_ids")):
        raise TypeError(
            f"text is {text!r:.80}, but must be a tokenizer, such as another model's text, or None"
        )
