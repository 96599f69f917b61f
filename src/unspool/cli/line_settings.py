"""What one line of a JSON file may say besides its prompt, and what it must look like.

    {"prompt": "Once upon a time", "seed": 3, "max_new_tokens": 40, "decoder": "Sample(TopP(0.9))"}

A setting of a line goes before the option of the same name; one that is null counts as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _string(value: Any) -> bool:
    return isinstance(value, str)


def _strings(value: Any) -> bool:
    return _string(value) or (isinstance(value, list) and all(map(_string, value)))


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_whole(0), value))


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "chat": (_flag, "true or false"),
    "decoder": (_string, 'a string such as "Sample(TopP(0.9))"'),
    "max_new_tokens": (_whole(1), "a whole number of 1 or more"),
    "n": (_whole(1), "a whole number of 1 or more"),
    "seed": (_whole(0), "a whole number of 0 or more"),
    "stop": (_strings, "a string or a list of strings"),
    "stop_approximate_loops": (_flag, "true or false"),
    "stop_ids": (_ids, "a list of token ids"),
    "stop_loops": (_flag, "true or false"),
    "system": (_string, "a string"),
}
"""Setting → whether a value is one, and what it should be."""


def read_settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the keys of a line, each of the right kind."""
    found = {}
    for name, (is_right, expected) in CHECKS.items():
        value = record.get(name)
        if value is None:
            continue
        if not is_right(value):
            raise ValueError(f'"{name}" must be {expected}, found {value!r:.60}')
        found[name] = value
    return found
