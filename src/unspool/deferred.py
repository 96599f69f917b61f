"""Names of a package that are imported when first used, so that to import the package costs nothing.

    __getattr__ = deferred(__name__, {"perplexity": "unspool.evaluate.text_perplexity"})

No name may also be that of a file of the package: Python binds a file to its name as soon as anybody imports
it, and whoever asks afterwards would get the module.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def deferred(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`: each name is looked up in its home, and from then on known to the package."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
