"""Decoders as strings: `parse` reads what `repr` prints.

    parse("Sample(Temperature(0.8), TopP(0.9))") == Sample(Temperature(0.8), TopP(0.9))

The string is read as a Python expression of calls to known techniques with literal arguments. It is not run.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

from unspool import config
from unspool.arguments import shown
from unspool.decode.picks import PICKS, TAU_RULES, BasisAware
from unspool.decode.ranking import RANKING
from unspool.decode.search import SEARCHES, UTILITIES, PromptLookup, Speculative
from unspool.decode.transforms import TRANSFORMS
from unspool.interfaces import Decoder
from unspool.plugins import OBJECT_NAME, allow_code, import_plugin, is_plugin, one_line

TECHNIQUES: dict[str, type] = {**SEARCHES, **TRANSFORMS, **PICKS, **RANKING, **UTILITIES, **TAU_RULES}
CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    **TECHNIQUES,
    "BasisAware.eta": BasisAware.eta,
    "BasisAware.nucleus": BasisAware.nucleus,
    "PromptLookup": PromptLookup,
    "Speculative": Speculative,
}
"""Every name that a string may call."""
PLUGIN_OR_STRING = re.compile(
    r"""\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|(?P<plugin>""" + OBJECT_NAME.pattern + ")"
)
"""A string literal, or module:name."""
SYNTAX_LOCK = threading.RLock()
"""Held while Python parses: CPython 3.11 counts the depth of syntax trees for all threads together."""
NON_FINITE = {"inf": math.inf, "nan": math.nan}
CONTAIN_MODELS = {
    "Contrast": "--weak MODEL on the command line, generate(Contrast(strong, weak), …) in Python",
    "DExperts": "generate(DExperts(base, expert, anti_expert), …) in Python",
    "EarlyExit": "generate(EarlyExit(model), …) in Python",
    "Ensemble": "generate(Ensemble((a, b)), …) in Python",
    "Guidance": "generate(Guidance(model, 1.5), …) in Python",
    "Speculative": "--draft MODEL on the command line, Speculative(draft, …) in Python, "
    "Speculative(PromptLookup(), …) without a model",
}
"""Techniques that contain a model, which a string cannot describe, and what to write instead."""


def parse(spec: str, *, trust_code: bool = False) -> Decoder:
    """Read a decoder from a string such as "Sample(TopP(0.9))" or "Greedy".

    It may name classes of other packages, "Sample(my_package:MySampler(0.1))": installed plugins always,
    others only with `trust_code` (`unspool.plugins`).
    """
    if not isinstance(spec, str):
        raise TypeError(
            f"the decoder is {shown(spec)}, but must be a string such as "
            '"Sample(Temperature(0.8), TopP(0.9))"'
        )
    try:
        tree = _parse_expression(spec.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deep
        raise ValueError(
            f'{spec!r:.200} is not a decoder: write it like "Sample(Temperature(0.8), TopP(0.9))"'
        ) from error
    try:
        with allow_code(trust_code):
            decoder: Decoder = _evaluate(tree, spec)
    except RecursionError:
        raise ValueError(f"{spec!r:.200} is not a decoder: it is nested too deeply") from None
    if type(decoder) not in SEARCHES.values() and not hasattr(decoder, "streams"):
        raise ValueError(f"{spec!r:.200} is only a part of a decoder: write Sample({spec.strip():.200})")
    return decoder


def as_decoder(decoder: Any) -> Decoder:
    """Return a decoder as it is, parse a string, and give the default decoder for None."""
    if decoder is None:
        return parse(config.DECODER)
    if isinstance(decoder, str):
        return parse(decoder)
    if isinstance(decoder, type):
        raise TypeError(f"the decoder is the class {decoder.__name__}: create one, {decoder.__name__}(…)")
    if not callable(decoder) or not hasattr(decoder, "streams"):
        wrap = f": wrap it, us.Sample({shown(decoder)})" if callable(decoder) else ""
        raise TypeError(
            f"{shown(decoder)} is not a decoder{wrap}. Give one such as us.Greedy() or us.Beam(4)."
        )
    parsed: Decoder = decoder
    return parsed


def _python_expression(text: str) -> ast.expr:
    with SYNTAX_LOCK:
        return ast.parse(text, mode="eval").body


def _parse_expression(spec: str) -> ast.expr:
    """Parse a Python expression in which names may have the form module:name."""
    try:
        return _python_expression(spec)
    except SyntaxError:
        names: dict[str, str] = {}

        def as_identifier(match: re.Match[str]) -> str:
            if match["plugin"] is None:
                return match[0]  # a string literal
            names[f"plugin_{len(names)}_"] = match["plugin"]
            return list(names)[-1]

        tree = _python_expression(PLUGIN_OR_STRING.sub(as_identifier, spec))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = names.get(node.id, node.id)
        return tree


def _evaluate(node: ast.expr, spec: str) -> Any:
    match node:
        case ast.Name(id=name) if name in NON_FINITE:
            return NON_FINITE[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id=name)) if name in NON_FINITE:
            return -NON_FINITE[name]
        case ast.Name(id=name):
            return _call(name, [], {}, spec)
        case ast.Call(func=ast.Name() | ast.Attribute() as function, args=args, keywords=keywords):
            named = {k.arg: _evaluate(k.value, spec) for k in keywords if k.arg is not None}
            if len(named) < len(keywords) or any(isinstance(arg, ast.Starred) for arg in args):
                raise ValueError(f"{spec!r}: a decoder may not contain * or **")
            return _call(ast.unparse(function), [_evaluate(arg, spec) for arg in args], named, spec)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_evaluate(item, spec) for item in items)
        case _:
            try:
                return ast.literal_eval(node)
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{spec!r}: {ast.unparse(node)!r} is neither a technique nor a plain value"
                ) from error


def _call(name: str, args: list[Any], named: dict[str, Any], spec: str) -> Any:
    is_lookup = name == "Speculative" and bool(args) and isinstance(args[0], PromptLookup)
    if name in CONTAIN_MODELS and not is_lookup:
        raise ValueError(f"{name} contains a model and cannot be a string: write {CONTAIN_MODELS[name]}")
    if name not in CONSTRUCTORS and is_plugin(name):
        constructor = import_plugin(name, "decoder")
        try:
            return constructor(*args, **named)
        except Exception as error:
            raise ValueError(f"{spec!r}: {name} failed with {one_line(error)}") from error
    if name not in CONSTRUCTORS:
        raise ValueError(f"unknown decoder {name!r:.80}: {config.suggest(name, CONSTRUCTORS)}")
    try:
        return CONSTRUCTORS[name](*args, **named)
    except TypeError as error:
        raise ValueError(f"{spec!r}: {_unknown_keyword(name, named) or error}") from error


def _unknown_keyword(name: str, named: Iterable[str]) -> str | None:
    """The error for a keyword that a technique does not have; None if it has all of them."""
    parameters = inspect.signature(CONSTRUCTORS[name]).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    known = [it.name for it in parameters if it.kind is not it.VAR_POSITIONAL]
    wrong = next((keyword for keyword in named if keyword not in known), None)
    if wrong is None:
        return None
    advice = (
        config.suggest(wrong, known)
        if known
        else "give transforms, as in Sample(Temperature(0.8), TopP(0.9))"
    )
    return f"{name} has no option {wrong!r}: {advice}"
