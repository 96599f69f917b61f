"""Reads a JSON object from a file, and names the file when it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unspool.files import read_bounded


def read_object(path: Path) -> dict[str, Any]:
    """The object that `path` holds; ValueError where it is not JSON, or JSON of another kind."""
    content = read_bounded(path)
    try:
        value = json.loads(content.decode())
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError, too
        raise ValueError(f"{path} is not valid JSON ({error}); fetch or write the file again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value
