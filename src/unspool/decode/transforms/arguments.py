"""What the transforms ask of their arguments: one wording for every refusal.

Each check names the argument, the value it got, what is allowed and what to do instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

LARGEST_BIAS = 1e9


def number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    advice: str,
) -> None:
    """Refuse anything but a finite number with above < value and at_least ≤ value ≤ at_most."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}, but must be a number. {advice}")
    if math.isfinite(value) and above < float(value) and at_least <= float(value) <= at_most:
        return
    low = f"{above:g} < " if above > -math.inf else f"{at_least:g} ≤ " if at_least > -math.inf else ""
    high = f" ≤ {at_most:g}" if at_most < math.inf else ""
    allowed = f"a finite number, {low}{name.rpartition('.')[2]}{high}" if low or high else "a finite number"
    raise ValueError(f"{name} is {value!r}, but must be {allowed}. {advice}")


def whole(name: str, value: Any, *, at_least: int, advice: str) -> None:
    """Refuse anything but a whole number ≥ at_least."""
    wanted = f"{name} is {value!r}, but must be a whole number ≥ {at_least}. {advice}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(wanted)
    if value < at_least:
        raise ValueError(wanted)


def flag(name: str, value: Any, *, advice: str) -> None:
    """Refuse anything but True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, but must be True or False. {advice}")


def ids(name: str, value: int | Iterable[int], *, empty: bool = False) -> tuple[int, ...]:
    """One token id or several, as a tuple in the order given."""
    tokens = tuple(value) if isinstance(value, Iterable) else (value,)
    for token in tokens:
        whole(name, token, at_least=0, advice="Give token ids, as the model's tokenizer counts them.")
    if not tokens and not empty:
        raise ValueError(
            f"{name} is empty, but needs at least one token id. Leave the transform out instead."
        )
    return tuple(int(token) for token in tokens)


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
        number(f"{name}[{key}]", bias, at_least=-LARGEST_BIAS, at_most=LARGEST_BIAS, advice=advice)
        found[key] = float(bias)
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
