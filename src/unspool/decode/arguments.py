"""Checks of arguments: errors that name the argument, its value, the allowed values and a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

from unspool.checked_fields import (
    MAX_INT as MAX_INT,
    Checked as Checked,
    as_bool as as_bool,
    as_int as as_int,
    as_number as as_number,
    checked_field,
    flag as flag,
    int_or_none as int_or_none,
    integer as integer,
    number as number,
    set_fields as set_fields,
    shown as shown,
)
from unspool.interfaces import Abilities

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_BIAS = 1e9


def token_ids(default: Any) -> Any:
    """A field that holds one or several token ids (see `ids`); None is allowed if it is the default."""
    return checked_field(partial(ids, empty=default == ()), default)


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


def declares_abilities(value: Any) -> bool:
    """True for a class that inherits from `interfaces.Abilities` (docs/adr/0009)."""
    return Abilities in type(value).__mro__


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
