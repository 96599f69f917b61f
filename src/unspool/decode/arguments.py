"""What the techniques of decoding ask of their arguments: one wording for every refusal.

Each check names the argument, the value it got, what is allowed and what to do instead.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from unspool.interfaces import Abilities

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_BIAS = 1e9
LARGEST = 10**12
"""Nothing here counts further, and what tensors count in goes a million times as far."""
LONGEST = 80
"""Characters of a value that an error shows."""


def shown(value: Any) -> str:
    """A value as an error shows it: short, whatever it is."""
    try:
        said = repr(value)
    except Exception:  # a repr may do anything, and a number may be too long to print
        said = f"a {type(value).__name__}"
    if "\n" in said:  # a module tells of all its parts
        said = f"a {type(value).__name__}"
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def set_fields(it: Any, **values: Any) -> None:
    """Write checked values into a frozen dataclass that is being made."""
    for name, value in values.items():
        object.__setattr__(it, name, value)


def check_number(it: Any, field: str, **limits: Any) -> None:
    """Refuse a field of a technique that is no such number (see `as_number`); keep it as Python's own."""
    set_fields(it, **{field: as_number(f"{type(it).__name__}.{field}", getattr(it, field), **limits)})


def check_int(it: Any, field: str, **limits: Any) -> None:
    """Refuse a field that is no such whole number (see `as_whole`); keep it as Python's own."""
    set_fields(it, **{field: as_whole(f"{type(it).__name__}.{field}", getattr(it, field), **limits)})


def check_bool(it: Any, field: str, *, advice: str) -> None:
    """Refuse a field that is neither True nor False."""
    value = getattr(it, field)
    if not isinstance(value, bool):
        name = f"{type(it).__name__}.{field}"
        raise TypeError(f"{name} is {shown(value)}, but must be True or False. {advice}")


def as_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    advice: str,
) -> float:
    """A finite number with above < value and at_least ≤ value ≤ at_most, as Python's own."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {shown(value)}, but must be a number. {advice}")
    try:
        found = int(value) if isinstance(value, Integral) else float(value)
        size = float(found)
    except OverflowError:  # a whole number beyond all floating point
        found = size = math.inf
    if math.isfinite(size) and above < size and at_least <= size <= at_most:
        return found
    low = f"{above:g} < " if above > -math.inf else f"{at_least:g} ≤ " if at_least > -math.inf else ""
    high = f" ≤ {at_most:g}" if at_most < math.inf else ""
    allowed = f"a finite number, {low}{name.rpartition('.')[2]}{high}" if low or high else "a finite number"
    raise ValueError(f"{name} is {shown(value)}, but must be {allowed}. {advice}")


def as_whole(name: str, value: Any, *, at_least: int, advice: str) -> int:
    """A whole number ≥ at_least, as Python's own."""
    wanted = f"{name} is {shown(value)}, but must be a whole number ≥ {at_least}. {advice}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(wanted)
    if value < at_least:
        raise ValueError(wanted)
    found = int(value)
    if found > LARGEST:
        raise ValueError(f"{name} is {shown(value)}, which is more than {LARGEST:,}. {advice}")
    return found


def as_matrix(name: str, value: Any, shape: str) -> Tensor:
    """A tensor of real numbers with two dimensions, and one row or more."""
    from torch import Tensor  # the command line checks numbers before it needs torch

    wanted = f"but must be a tensor of shape {shape}, with one row or more."
    if not isinstance(value, Tensor) or value.is_complex():
        raise TypeError(f"{name} is {shown(value)}, {wanted}")
    if value.dim() != 2 or not value.numel():
        raise ValueError(f"{name} has shape {tuple(value.shape)}, {wanted}")
    return value


def function_of(value: Any, count: int) -> bool:
    """Whether a value is there to be called with that many arguments: no class, no model and no search is."""
    if isinstance(value, type) or not callable(value) or hasattr(value, "streams") or is_model(value):
        return False
    try:
        # A torch module takes anything, and asks `forward`.
        inspect.signature(getattr(value, "forward", value)).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # what is built in does not say what it takes
        return True
    return True


def is_model(value: Any) -> bool:
    """Whether a value reads texts: it is decoded token by token, or learns."""
    return (hasattr(value, "start") and hasattr(value, "step")) or hasattr(value, "hidden_for")


def declares_abilities(value: Any) -> bool:
    """Whether a model says what it can do, as `protocols.Abilities` wants it said (docs/adr/0009)."""
    return Abilities in type(value).__mro__


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a word that is not among the choices."""
    if not isinstance(value, str) or value not in choices:
        said = ", ".join(repr(choice) for choice in sorted(choices))
        raise ValueError(f"{name} is {shown(value)}, but must be one of {said}.")


def items(name: str, value: Any, wanted: str) -> tuple[Any, ...]:
    """What a list or another collection holds; a string, or one that is no collection, is refused."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(listed, str | bytes | Mapping | type) or not isinstance(listed, Iterable):
        raise TypeError(f"{name} is {shown(value)}, but must be {wanted}.")
    return tuple(listed)


def ids(name: str, value: int | Iterable[int], *, empty: bool = False) -> tuple[int, ...]:
    """One token id or several, as a tuple in the order given."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    several = isinstance(listed, Iterable) and not isinstance(listed, str | bytes)
    advice = "Give token ids, as the model's tokenizer counts them."
    tokens = tuple(
        as_whole(name, token, at_least=0, advice=advice)
        for token in (items(name, listed, "token ids") if several else (listed,))
    )
    if not tokens and not empty:
        raise ValueError(
            f"{name} is empty, but needs at least one token id. Leave the transform out instead."
        )
    return tokens


def ends(name: str, value: int | Iterable[int] | None) -> tuple[int, ...]:
    """End-of-text tokens that must be known by now."""
    found = () if value is None else ids(name, value, empty=True)
    if not found:
        raise ValueError(f"{name} is not known here: the model names no end-of-text token. Give its id.")
    return found


def phrases(name: str, value: Any) -> tuple[str | tuple[int, ...], ...]:
    """Words, each a string or token ids, in the order given."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {value!r}. Give a tuple of words, even for one: ({value!r},).")
    return tuple(phrase(name, one) for one in value)


def phrase(name: str, value: Any) -> str | tuple[int, ...]:
    """One word: a string that is not empty, or at least one token id."""
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
    """Sequences of token ids; a string among them has not met its tokenizer yet."""
    words = next((one for one in value if isinstance(one, str)), None)
    if words is not None:
        raise ValueError(f"{name} holds {words!r}, which needs a model's tokenizer. Give token ids here.")
    return [tuple(one) for one in value]


def biases(
    name: str, value: Mapping[Any, float] | Iterable[tuple[Any, float]]
) -> tuple[tuple[str | tuple[int, ...], float], ...]:
    """Words and their biases as a sorted tuple of pairs: hashable, however they were written."""
    found: dict[str | tuple[int, ...], float] = {}
    for sequence, bias in pairs(name, value):
        key = phrase(name, sequence)
        if key in found:
            raise ValueError(f"{name} names {key!r} twice. Give it one bias.")
        advice = "To forbid a sequence, use BadWords."
        limits = {"at_least": -LARGEST_BIAS, "at_most": LARGEST_BIAS}
        found[key] = float(as_number(f"{name}[{key}]", bias, **limits, advice=advice))
    if not found:
        raise ValueError(f"{name} is empty, but needs at least one entry. Leave the transform out instead.")
    return tuple(sorted(found.items(), key=lambda pair: (isinstance(pair[0], str), pair[0])))


def pairs(name: str, value: Any) -> list[tuple[Any, Any]]:
    """What a mapping, or something that could be one, holds."""
    try:
        return [(key, bias) for key, bias in (value.items() if isinstance(value, Mapping) else value)]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} is {value!r:.80}, but must be a mapping from words to numbers, such as {{(5, 7): -1.0}}."
        ) from error


def within(name: str, tokens: Iterable[int], vocabulary: int) -> None:
    """Refuse token ids that the scores have no column for."""
    outside = sorted({token for token in tokens if token >= vocabulary})
    if outside:
        raise ValueError(
            f"{name} holds the token ids {outside}, but the scores have {vocabulary} columns "
            f"(ids 0 … {vocabulary - 1}). Take the ids from the model's own tokenizer."
        )
