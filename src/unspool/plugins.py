"""Plugins: Python objects of other packages that recipes and decoder strings name.

    my_package:MySampler    an importable object, if the user allows it: trust_code=True, --trust-code
    my_sampler              an installed entry point of the group `unspool.plugins`, always allowed

    [project.entry-points."unspool.plugins"]
    my_sampler = "my_package:MySampler"

An object is imported only after this check. Loading a run folder or resuming a run checks again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from unspool.errors import clip

OBJECT_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""module:name, both Python names; never the path of a file."""
ENTRY_POINT_GROUP = "unspool.plugins"
MAX_ERROR_LENGTH = 200

_is_code_trusted: ContextVar[bool] = ContextVar("is_code_trusted", default=False)


@contextmanager
def allow_code(trust_code: bool) -> Iterator[None]:
    """Allow code named by recipes, run folders and decoder strings inside the block, if `trust_code`."""
    token = _is_code_trusted.set(trust_code or _is_code_trusted.get())
    try:
        yield
    finally:
        _is_code_trusted.reset(token)


def installed_plugins() -> dict[str, str]:
    """Return entry point name → module:name for all installed packages, without importing them."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}


def is_plugin(name: str) -> bool:
    """True if the name has the form module:name or is an installed plugin."""
    return OBJECT_NAME.fullmatch(name) is not None or name in installed_plugins()


def check_trust(name: str, where: str) -> None:
    """Raise ValueError if the name would import code that the user has not allowed."""
    if _is_code_trusted.get() or OBJECT_NAME.fullmatch(name) is None or name in installed_plugins().values():
        return
    raise ValueError(
        f"{where} {name!r} would run Python code of {name.partition(':')[0]!r}: allow it with --trust-code "
        "(in Python trust_code=True)"
    )


def import_plugin(name: str, where: str) -> Any:
    """Import the object that a plugin name stands for, if the user allows it."""
    check_trust(name, where)
    return import_object(name, where)


def import_object(name: str, where: str) -> Any:
    """Import the object without checking trust; errors are one line that begins with `where`."""
    target = name if OBJECT_NAME.fullmatch(name) else installed_plugins()[name]
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{where} {name!r}: cannot import the module {module!r} ({error}): put its folder on PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"{where} {name!r}: importing the module {module!r} failed with {one_line(error)}"
        ) from error
    if found is None:
        raise ValueError(f"{where} {name!r}: {module!r} does not define {attribute!r}")
    return found


def plugin_name(obj: type) -> str:
    """Return the name that `import_plugin` finds a class by: its entry point, or module:name."""
    target = f"{obj.__module__}:{obj.__qualname__}"
    return next((name for name, value in installed_plugins().items() if value == target), target)


def one_line(error: BaseException) -> str:
    """Return an error as one short line."""
    return clip(f"{type(error).__name__}: {' '.join(str(error).split())}", MAX_ERROR_LENGTH)
