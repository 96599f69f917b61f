"""Typed reading of config.json and GGUF metadata; errors name the file, the key and the expected value."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class UnsupportedModelError(ValueError):
    """A valid model whose family or option this package does not implement; another engine may run it."""


_MAX_INT = 2**31 - 1
_MAX_FLOAT = sys.float_info.max  # JSON integers have any length


@dataclass(frozen=True)
class ConfigReader:
    """The key–value pairs of a configuration. A null counts as absent."""

    source: str
    """The file, for messages."""
    values: Mapping[str, Any]
    names: Mapping[str, str] = field(default_factory=dict)
    """Key → its name in the file, if that differs: GGUF has "llama.block_count" for num_hidden_layers."""

    def name(self, key: str) -> str:
        return self.names.get(key, key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value as it is in the file, possibly null; the default if the key is absent."""
        return self.values.get(self.name(key), default)

    def has(self, key: str) -> bool:
        return self.get(key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        expected = f"a whole number from 1 to {_MAX_INT}"
        return self._read(key, default, expected, lambda value: type(value) is int and 1 <= value <= _MAX_INT)

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""

        def is_valid(value: Any) -> bool:
            return type(value) in (int, float) and 0 < value <= _MAX_FLOAT

        return float(self._read(key, default, "a finite number above 0", is_valid))

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._read(key, default, "true or false", lambda value: isinstance(value, bool))

    def string(self, key: str, default: str | None = None) -> str:
        return self._read(key, default, "a string", lambda value: isinstance(value, str))

    def table(self, key: str) -> ConfigReader:
        """A nested table, empty if absent."""
        table: Mapping[str, Any] = {}
        table = self._read(key, table, "a table", lambda value: isinstance(value, Mapping))
        return ConfigReader(self.source, table)

    def choose(self, key: str, choices: Mapping[str, str], default: str) -> Any:
        """Our word for the value of a setting; `choices` are the supported values."""
        value = self.string(key, default)
        if value not in choices:
            known = ", ".join(choices)
            raise UnsupportedModelError(
                f"{self.source}: {self.name(key)} {value!r:.40} is unknown; known are {known}"
            )
        return choices[value]

    def require(self, key: str, expected: Any) -> None:
        """Reject a setting that differs from the only supported value; absent is accepted."""
        if self.has(key) and self.get(key) != expected:
            raise UnsupportedModelError(
                f"{self.source}: {self.name(key)} is {self.get(key)!r:.80}; only {expected!r} is supported"
            )

    def _read(self, key: str, default: T | None, expected: str, is_valid: Callable[[Any], bool]) -> T:
        value: T | None = self.get(key) if self.has(key) else default
        if value is None:
            raise ValueError(f"{self.source}: {self.name(key)} is missing; expected {expected}")
        if not is_valid(value):
            raise ValueError(f"{self.source}: {self.name(key)} is {value!r:.80}; expected {expected}")
        return value
