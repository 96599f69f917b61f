"""Techniques as text: what `repr` prints, `parse` reads.

    parse("Sample(Temperature(0.8), TopP(0.9))") == Sample(Temperature(0.8), TopP(0.9))

The text is read as a Python expression of calls to known techniques with literal arguments, and never run.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from unspool.config import suggest
from unspool.decode.arguments import shown
from unspool.decode.picks import PICKS, TAU_RULES, BasisAware
from unspool.decode.ranking import RANKING
from unspool.decode.search import SEARCHES, UTILITIES
from unspool.decode.transforms import TRANSFORMS
from unspool.interfaces import Decoder

TECHNIQUES: dict[str, type] = {**SEARCHES, **TRANSFORMS, **PICKS, **RANKING, **UTILITIES, **TAU_RULES}
MAKERS: dict[str, Callable[..., Any]] = {
    **TECHNIQUES,
    "BasisAware.eta": BasisAware.eta,
    "BasisAware.nucleus": BasisAware.nucleus,
}
"""Everything that may be called."""
NUMBERS = {"inf": math.inf, "nan": math.nan}
"""What Python prints for numbers that have no digits."""
WITH_MODELS = {
    "Contrast": "it is a model made of two: --weak MODEL on the command line; in Python "
    "generate(Contrast(strong, weak), …), with any search",
    "DExperts": "it is a model made of three: in Python generate(DExperts(base, expert, anti_expert), …), "
    "with any search",
    "EarlyExit": "it is a model made of another: in Python generate(EarlyExit(model), …), with any search",
    "Ensemble": "it is a model made of several: in Python generate(Ensemble((a, b)), …), with any search",
    "Guidance": "it is a model made of another: in Python generate(Guidance(model, 1.5), …), with any search",
    "Speculative": "it holds a second model: --draft MODEL on the command line, beside a Greedy or a Sample; "
    "in Python Speculative(draft, …)",
}
"""What no text can name, for it holds a model; and what to write instead."""


def parse(spec: str) -> Decoder:
    """The search that a text such as "Sample(TopP(0.9))" or "Greedy" names."""
    if not isinstance(spec, str):
        raise TypeError(
            f"the decoder is {shown(spec)}, but must be a string such as "
            '"Sample(Temperature(0.8), TopP(0.9))"'
        )
    try:
        tree = ast.parse(spec.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deep
        raise ValueError(
            f'{spec!r:.200} is not a decoder: write it like "Sample(Temperature(0.8), TopP(0.9))"'
        ) from error
    try:
        made = _make(tree, spec)
    except RecursionError:
        raise ValueError(f"{spec!r:.200} is not a decoder: it is nested too deeply") from None
    if type(made) not in SEARCHES.values():
        raise ValueError(f"{spec!r} is only a part of a decoder: write Sample({spec.strip()})")
    search: Decoder = made
    return search


def _make(node: ast.expr, spec: str) -> Any:
    match node:
        case ast.Name(id=name) if name in NUMBERS:
            return NUMBERS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id=name)) if name in NUMBERS:
            return -NUMBERS[name]
        case ast.Name(id=name):
            return _call(name, [], {}, spec)
        case ast.Call(func=ast.Name() | ast.Attribute() as named_by, args=args, keywords=keywords):
            named = {k.arg: _make(k.value, spec) for k in keywords if k.arg is not None}
            if len(named) < len(keywords) or any(isinstance(arg, ast.Starred) for arg in args):
                raise ValueError(f"{spec!r}: * and ** cannot stand in a decoder")
            return _call(ast.unparse(named_by), [_make(arg, spec) for arg in args], named, spec)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_make(item, spec) for item in items)
        case _:
            try:
                return ast.literal_eval(node)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{spec!r}: {ast.unparse(node)!r} is neither a technique nor a plain value"
                ) from error


def _call(name: str, args: list[Any], named: dict[str, Any], spec: str) -> Any:
    if name in WITH_MODELS:
        raise ValueError(f"{spec!r}: {name} cannot be written as text, for {WITH_MODELS[name]}")
    if name not in MAKERS:
        raise ValueError(f"unknown decoder {name!r:.80}: {suggest(name, MAKERS)}")
    try:
        return MAKERS[name](*args, **named)
    except TypeError as error:
        raise ValueError(f"{spec!r}: {error}") from error
