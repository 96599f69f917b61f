"""Fields of frozen dataclasses that check their values: the error names field, value, limits and remedy."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import MISSING, field, fields
from functools import partial
from numbers import Integral, Real
from typing import Any

MAX_INT = 10**12
"""Maximum of integer arguments, far below the range of tensors."""
MAX_SHOWN_CHARACTERS = 80
"""Characters of a value that an error shows."""


def shown(value: Any) -> str:
    """A short repr of a value for error messages."""
    try:
        text = repr(value)
    except Exception:  # a repr may fail, and a number may be too long to print
        text = f"a {type(value).__name__}"
    if "\n" in text:  # such as the repr of a torch module
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 1]}…"


def set_fields(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass in its __post_init__."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


class Checked:
    """Base class of dataclasses with fields that check their values (`number`, `integer`, …)."""

    def __post_init__(self) -> None:
        for name, rule in ((each.name, each.metadata) for each in fields(self)):  # type: ignore[arg-type]
            if rule and not (getattr(self, name) is None and rule["optional"]):
                value = rule["check"](f"{type(self).__name__}.{name}", getattr(self, name))
                set_fields(self, **{name: value})


def checked_field(check: Callable[[str, Any], Any], default: Any, optional: bool = False) -> Any:
    """A field whose value `check` takes with its name, and returns in its final form."""
    return field(default=default, metadata={"check": check, "optional": optional or default is None})


def number(default: Any = MISSING, *, optional: bool = False, **limits: Any) -> Any:
    """A field that holds a number (see `as_number`); None is allowed if it is optional or the default."""
    return checked_field(partial(as_number, **limits), default, optional)


def integer(default: Any = MISSING, **limits: Any) -> Any:
    """A field that holds an integer (see `as_int`); None is allowed if it is the default."""
    return checked_field(partial(as_int, **limits), default)


def flag(default: bool, *, advice: str) -> Any:
    """A field that holds True or False."""
    return checked_field(partial(as_bool, advice=advice), default)


def as_bool(name: str, value: Any, *, advice: str = "") -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {shown(value)}, but must be True or False. {advice}".rstrip())
    return value


def as_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
    advice: str = "",
) -> float:
    """A finite number between the limits, as an int or float."""
    value = value.tolist() if getattr(value, "ndim", None) == 0 else value  # an array without dimensions
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {shown(value)}, but must be a number. {advice}".rstrip())
    try:
        number = int(value) if isinstance(value, Integral) else float(value)
        size = float(number)
    except OverflowError:  # an integer beyond the range of floats
        number = size = math.inf
    if math.isfinite(size) and above < size < below and at_least <= size <= at_most:
        return number
    low = f"{above:g} < " if above > -math.inf else f"{at_least:g} ≤ " if at_least > -math.inf else ""
    high = f" ≤ {at_most:g}" if at_most < math.inf else f" < {below:g}" if below < math.inf else ""
    allowed = f"a finite number, {low}{name.rpartition('.')[2]}{high}" if low or high else "a finite number"
    raise ValueError(f"{name} is {shown(value)}, but must be {allowed}. {advice}".rstrip())


def int_or_none(value: Any) -> int | None:
    """An integer of any type as an int; None for everything else, including bool."""
    if isinstance(value, bool) or getattr(value, "ndim", 0) > 0:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_int(name: str, value: Any, *, at_least: int, at_most: int = MAX_INT, advice: str = "") -> int:
    """An integer between the limits, as an int."""
    number = int_or_none(value)
    if number is None or number < at_least:
        error = TypeError if number is None else ValueError
        raise error(f"{name} is {shown(value)}, but must be a whole number ≥ {at_least}. {advice}".rstrip())
    if number > at_most:
        raise ValueError(f"{name} is {shown(value)}, which is more than {at_most:,}. {advice}".rstrip())
    return number
