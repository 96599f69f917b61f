"""What the transforms ask of their arguments: one wording for every refusal.

Each check names the argument, the value it got, what is allowed and what to do instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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


def biases(
    name: str, value: Mapping[Sequence[int], float] | Iterable[tuple[Sequence[int], float]]
) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Token sequences and their biases as a sorted tuple of pairs: hashable, however they were written."""
    found: dict[tuple[int, ...], float] = {}
    for sequence, bias in value.items() if isinstance(value, Mapping) else value:
        key = ids(name, sequence)
        if key in found:
            raise ValueError(f"{name} names the tokens {key} twice. Give them one bias.")
        advice = "To forbid a sequence, use BadWords."
        number(f"{name}[{key}]", bias, at_least=-LARGEST_BIAS, at_most=LARGEST_BIAS, advice=advice)
        found[key] = float(bias)
    if not found:
        raise ValueError(f"{name} is empty, but needs at least one entry. Leave the transform out instead.")
    return tuple(sorted(found.items()))


def within(name: str, tokens: Iterable[int], vocabulary: int) -> None:
    """Refuse token ids that the scores have no column for."""
    outside = sorted({token for token in tokens if token >= vocabulary})
    if outside:
        raise ValueError(
            f"{name} holds the token ids {outside}, but the scores have {vocabulary} columns "
            f"(ids 0 … {vocabulary - 1}). Take the ids from the model's own tokenizer."
        )
