"""Typed reading of config.json and GGUF metadata; errors name the file, the key and the expected value."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn


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
    prefix: str = ""
    """Prefix of every key; GGUF writes "llama.block_count"."""

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self._value(key, default, "a whole number")
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_INT:
            self._fail(key, value, f"a whole number from 1 to {_MAX_INT}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self._value(key, default, "a number")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_FLOAT:
            self._fail(key, value, "a finite number above 0")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            self._fail(key, value, "true or false")
        return value

    def string(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default, "a string")
        if not isinstance(value, str):
            self._fail(key, value, "a string")
        return value

    def table(self, key: str) -> ConfigReader:
        """A nested table, empty if absent."""
        value = self._value(key, {}, "a table")
        if not isinstance(value, Mapping):
            self._fail(key, value, "a table")
        return ConfigReader(self.source, value)

    def has(self, key: str) -> bool:
        """True if the key is present and not null."""
        return self.values.get(self.prefix + key) is not None

    def require(self, key: str, expected: Any) -> None:
        """Reject a setting that differs from the only supported value; absent is accepted."""
        if self.has(key) and self.values[self.prefix + key] != expected:
            raise UnsupportedModelError(
                f"{self.source}: {self.prefix + key} is {self.values[self.prefix + key]!r:.80}; only "
                f"{expected!r} is supported"
            )

    def _value(self, key: str, default: Any, kind: str) -> Any:
        value = self.values.get(self.prefix + key)
        if value is None:
            value = default
        if value is None:
            raise ValueError(f"{self.source}: {self.prefix + key} is missing; expected {kind}")
        return value

    def _fail(self, key: str, value: Any, expected: str) -> NoReturn:
        raise ValueError(f"{self.source}: {self.prefix + key} is {value!r:.80}; expected {expected}")
