"""Settings as frozen dataclasses: built from plain mappings (TOML, JSON) and turned back into them.

    build(TrainConfig, {"updates": 100}, "train")                       one class: its fields are its keys
    choose({"bpe": BPE, "words": Words}, {"kind": "bpe"}, "tokenizer")  one of several, by its "kind"

A field whose key is a Python keyword ends with an underscore: `from_` is the key "from". Unknown keys and
values of the wrong type are errors that name the nearest known key or the expected type.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar, get_args, get_origin

from unspool.plugins import import_plugin, is_plugin, plugin_name

T = TypeVar("T")
W = TypeVar("W", bound=str)

MAX_LISTED_CHOICES = 12
"""Errors list all choices up to this number, and the three nearest of more."""


def build(cls: type[T], settings: Mapping[str, Any], where: str) -> T:
    """Build the dataclass `cls` from settings; `where` names them in errors, as in `train.updates`."""
    hints = typing.get_type_hints(cls)
    known = {_key(field): field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in settings:
        if key not in known:
            raise ValueError(unknown(str(key), known, f"key of [{where}]" if where else "key"))
    for key, field in known.items():
        defaults = (field.default, field.default_factory)
        has_default = any(default is not dataclasses.MISSING for default in defaults)
        if not has_default and key not in settings:
            raise ValueError(f"[{where}] lacks {key!r}, which {cls.__name__} needs: give it a value")
    values = {}
    for key, value in settings.items():
        name = known[key].name
        values[name] = convert(value, hints[name], f"{where}.{key}")
    try:
        return cls(**values)
    except ValueError as error:
        # An error about the limits of a field begins with its class, which settings call by their section.
        message = str(error)
        if where and message.startswith(f"{cls.__name__}."):
            raise ValueError(f"{where}.{message.removeprefix(f'{cls.__name__}.')}") from None
        raise


def check_types(made: Any) -> None:
    """Check the field types of a frozen dataclass; NumPy numbers become Python's, lists become tuples."""
    hints = typing.get_type_hints(type(made))
    for field in dataclasses.fields(made):
        if field.init:
            where = f"{type(made).__name__}.{field.name}"
            object.__setattr__(made, field.name, convert(getattr(made, field.name), hints[field.name], where))


def choose(choices: Mapping[str, type[T]], settings: Mapping[str, Any], where: str) -> T:
    """Build one of several dataclasses, chosen by the key "kind"; a kind may be a plugin."""
    rest = dict(settings)
    kind = rest.pop("kind", None)
    if kind is None:
        raise ValueError(f'[{where}] lacks "kind": choose from {", ".join(sorted(choices))}')
    if isinstance(kind, str) and kind not in choices and is_plugin(kind):
        plugin: Any = import_plugin(kind, f"[{where}] kind =")
        if not hasattr(plugin, "__dataclass_fields__"):
            raise ValueError(f"[{where}] kind = {kind!r} is {plugin!r:.60}, but must be a dataclass")
        choices = {kind: plugin}
    if kind not in choices:
        raise ValueError(unknown(str(kind), list(choices), f"kind of [{where}]"))
    return build(choices[kind], rest, where)


def to_dict(settings: Any) -> dict[str, Any]:
    """Return the mapping that `build` turns into the same dataclass, without None (for TOML)."""
    fields = (field for field in dataclasses.fields(settings) if field.init)
    values = {_key(field): getattr(settings, field.name) for field in fields}
    return {key: _to_plain(value) for key, value in values.items() if value is not None}


def to_kind_dict(choices: Mapping[str, type[Any]], settings: Any) -> dict[str, Any]:
    """`to_dict`, with the "kind" that `choose` finds it by."""
    return {"kind": kind_name(choices, type(settings)), **to_dict(settings)}


def kind_name(choices: Mapping[str, type[Any]], cls: type) -> str:
    """Return the "kind" that `choose` finds a class by."""
    return next((name for name, choice in choices.items() if choice is cls), None) or plugin_name(cls)


def unknown(name: str, choices: Iterable[str], what: str) -> str:
    """The error message for an unknown name, with the nearest known ones."""
    return f"{name!r} is not a known {what}: {suggest(name, choices)}"


def suggest(name: str, choices: Iterable[str]) -> str:
    """Up to three choices that resemble the name: "did you mean 'a' or 'b'?"; all if they are few."""
    known = list(dict.fromkeys(choices))
    near = difflib.get_close_matches(name, known, n=3)
    if not near:
        if len(known) <= MAX_LISTED_CHOICES:
            return f"choose from {', '.join(sorted(known))}"
        by_lower = {choice.lower(): choice for choice in known}
        near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.0)
        near = [by_lower[choice] for choice in near]
    *first, last = map(repr, near)
    return f"did you mean {', '.join(first)} or {last}?" if first else f"did you mean {last}?"


def find_word(value: object, choices: Iterable[W]) -> W | None:
    """Return the choice that equals a string, or None."""
    return next((choice for choice in choices if isinstance(value, str) and value == choice), None)


def convert(value: Any, hint: Any, where: str) -> Any:
    """Convert a value to the type of a field, only if that is lossless."""
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, get_args(hint), where)
    if origin is typing.Literal:
        choices = get_args(hint)
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise ValueError(unknown(str(value), map(str, choices), f"value of {where}"))
        return value
    if origin in (tuple, list) and isinstance(value, (list, tuple)):
        inner = get_args(hint)[0] if get_args(hint) else Any
        return tuple(convert(item, inner, where) for item in value)
    if origin in (dict, Mapping) or hint in (dict, Mapping):
        hint = dict
    if hint is Any or (
        isinstance(hint, type) and isinstance(value, hint) and not _bool_as_number(value, hint)
    ):
        return value
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return build(hint, value, where)
    if hint is int and isinstance(value, Integral) and not _bool_as_number(value, hint):
        return int(value)
    if hint is float and isinstance(value, Real) and not _bool_as_number(value, hint):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{where} has {len(str(value))} digits, too many for a float") from None
    raise ValueError(f"{where} is {value!r:.80}, but must be of type {_type_name(hint)}")


def _convert_union(value: Any, hints: Sequence[Any], where: str) -> Any:
    if value is None and type(None) in hints:
        return None
    errors = []
    for hint in hints:
        if hint is not type(None):
            try:
                return convert(value, hint, where)
            except ValueError as error:
                errors.append(error)
    if len(errors) == 1 or isinstance(value, Mapping):
        raise errors[0]
    raise ValueError(f"{where} is {value!r:.80}, but must be of type {' or '.join(map(_type_name, hints))}")


def _type_name(hint: Any) -> str:
    if hint is tuple or get_origin(hint) is tuple:
        return "list"  # as in TOML
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _bool_as_number(value: Any, hint: type) -> bool:
    return isinstance(value, bool) and hint is not bool and hint is not object


def _key(field: dataclasses.Field[Any]) -> str:
    return field.name.removesuffix("_")


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    return value


# Default settings, in Python and on the command line.


MODEL, SECOND_MODEL = "smollm2", "bible"
"""The default model: the first if it is installed, else the second, which is built in."""
DECODER = "Sample(Temperature(0.8), TopP(0.95))"
MAX_NEW_TOKENS = 128
MAX_CHAT_TOKENS = 512
"""Maximum number of tokens of an answer in a conversation."""
MAX_BATCH_ROWS = 256
"""Maximum number of rows decoded in parallel: prompts times samples, or times the beam width."""
MAX_SAMPLES = 1_000_000
"""Maximum number of samples of one prompt (`n`); all are kept in memory until the call returns."""
