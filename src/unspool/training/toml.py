"""Plain settings as TOML, which the standard library only reads.

{"seed": 1, "train": {"updates": 100}}   →   seed = 1\n\n[train]\nupdates = 100
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(settings: Mapping[str, Any]) -> str:
    """What `tomllib.loads` reads the same settings from; None is left out."""
    plain = {key: it for key, it in settings.items() if it is not None and not isinstance(it, Mapping)}
    tables = {key: it for key, it in settings.items() if isinstance(it, Mapping)}
    parts = [_lines(plain)] if plain else []
    parts += [f"[{_key(key)}]\n{_lines(table)}" for key, table in tables.items()]
    return "\n".join(parts)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(it)}\n" for key, it in table.items() if it is not None)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _value(it: Any) -> str:
    match it:
        case bool():
            return "true" if it else "false"
        case float():
            return repr(it) if math.isfinite(it) else {math.inf: "inf", -math.inf: "-inf"}.get(it, "nan")
        case int():
            return str(it)
        case str():
            return _string(it)
        case Mapping():
            inner = ", ".join(
                f"{_key(key)} = {_value(value)}" for key, value in it.items() if value is not None
            )
            return f"{{ {inner} }}" if inner else "{}"
        case list() | tuple():
            return f"[{', '.join(_value(value) for value in it)}]"
    raise TypeError(f"TOML has no word for {it!r:.40}, a {type(it).__name__}")


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
