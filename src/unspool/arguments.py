"""Checks of arguments and dataclass fields: errors name the argument, its value, its limits and a remedy."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, field, fields
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MAX_INT = 10**12
"""Maximum of integer arguments, far below the range of tensors."""
LARGEST_BIAS = 1e9
MAX_SHOWN_CHARACTERS = 80


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
                value = rule["check"](self.shown_name(name), getattr(self, name))
                set_fields(self, **{name: value})

    def shown_name(self, field: str) -> str:
        """The name of a field in errors."""
        return f"{type(self).__name__}.{field}"


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


def token_ids(default: Any) -> Any:
    """A field that holds one or several token ids (see `ids`); None is allowed if it is the default."""
    return checked_field(partial(ids, empty=default == ()), default)


def as_bool(name: str, value: Any, *, advice: str = "") -> bool:
    """Refuse values other than True and False."""
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


def as_matrix(name: str, value: Any, shape: str) -> Tensor:
    """A real matrix with at least one row."""
    from torch import Tensor  # not needed by the command line

    wanted = f"but must be a tensor of shape {shape}, with one row or more."
    if not isinstance(value, Tensor) or value.is_complex():
        raise TypeError(f"{name} is {shown(value)}, {wanted}")
    if value.dim() != 2 or not value.numel():
        raise ValueError(f"{name} has shape {tuple(value.shape)}, {wanted}")
    return value


def function_of(value: Any, count: int) -> bool:
    """True for a function of that many arguments; False for classes, models and decoders."""
    is_model = (hasattr(value, "start") and hasattr(value, "step")) or hasattr(value, "hidden_for")
    if isinstance(value, type) or not callable(value) or hasattr(value, "streams") or is_model:
        return False
    try:
        # A torch module has the signature of its `forward`.
        inspect.signature(getattr(value, "forward", value)).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return True
    return True


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a string that is not among the choices."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in sorted(choices))
        raise ValueError(f"{name} is {shown(value)}, but must be one of {listed}.")


def items(name: str, value: Any, wanted: str) -> tuple[Any, ...]:
    """The items of a collection; strings and mappings are refused."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, str | bytes | Mapping | type) or not isinstance(listed, Iterable):
        raise TypeError(f"{name} is {shown(value)}, but must be {wanted}.")
    return tuple(listed)


def ids(name: str, value: int | Iterable[int], *, empty: bool = False) -> tuple[int, ...]:
    """One token id or several, as a tuple."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    several = isinstance(listed, Iterable) and not isinstance(listed, str | bytes)
    advice = "Give token ids, as the model's tokenizer counts them."
    given = items(name, listed, "token ids") if several else (listed,)
    tokens = tuple(as_int(name, token, at_least=0, advice=advice) for token in given)
    if not tokens and not empty:
        raise ValueError(
            f"{name} is empty, but needs at least one token id. Leave the transform out instead."
        )
    return tokens


def phrases(name: str, value: Any) -> tuple[str | tuple[int, ...], ...]:
    """Phrases, each a string or token ids."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {value!r}. Give a tuple of words, even for one: ({value!r},).")
    return tuple(phrase(name, one) for one in value)


def phrase(name: str, value: Any) -> str | tuple[int, ...]:
    """One phrase: a string that is not empty, or at least one token id."""
    if isinstance(value, bytes | Integral) or not isinstance(value, Iterable):
        raise TypeError(
            f"{name} holds {value!r}, but a word is a string or a tuple of token ids. Write a tuple even for "
            f"one: ({value!r},)."
        )
    if isinstance(value, str):
        if not value:
            raise ValueError(f"{name} holds an empty string. Leave it out.")
        return value
    return ids(name, value)


def known_ids(name: str, value: Iterable[Any]) -> list[tuple[int, ...]]:
    """Sequences of token ids; a string is refused because it is not encoded."""
    words = next((one for one in value if isinstance(one, str)), None)
    if words is not None:
        raise ValueError(f"{name} holds {words!r}, which needs a model's tokenizer. Give token ids here.")
    return [tuple(one) for one in value]


def biases(
    name: str, value: Mapping[Any, float] | Iterable[tuple[Any, float]]
) -> tuple[tuple[str | tuple[int, ...], float], ...]:
    """Phrases and their biases as a sorted tuple of pairs."""
    bias_of: dict[str | tuple[int, ...], float] = {}
    for sequence, bias in pairs(name, value):
        key = phrase(name, sequence)
        if key in bias_of:
            raise ValueError(f"{name} names {key!r} twice. Give it one bias.")
        advice = "To forbid a sequence, use BadWords."
        limits = {"at_least": -LARGEST_BIAS, "at_most": LARGEST_BIAS}
        bias_of[key] = float(as_number(f"{name}[{key}]", bias, **limits, advice=advice))
    if not bias_of:
        raise ValueError(f"{name} is empty, but needs at least one entry. Leave the transform out instead.")
    return tuple(sorted(bias_of.items(), key=lambda pair: (isinstance(pair[0], str), pair[0])))


def pairs(name: str, value: Any) -> list[tuple[Any, Any]]:
    """The pairs of a mapping, or of a list of pairs."""
    try:
        return [(key, bias) for key, bias in (value.items() if isinstance(value, Mapping) else value)]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} is {value!r:.80}, but must be a mapping from words to numbers, such as {{(5, 7): -1.0}}."
        ) from error


def within(name: str, tokens: Iterable[int], vocabulary: int) -> None:
    """Refuse token ids beyond the columns of the scores."""
    outside = sorted({token for token in tokens if token >= vocabulary})
    if outside:
        raise ValueError(
            f"{name} holds the token ids {outside}, but the scores have {vocabulary} columns "
            f"(ids 0 … {vocabulary - 1}). Take the ids from the model's own tokenizer."
        )
