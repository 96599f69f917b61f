"""Names of a package that are imported when first used, so that to import the package costs nothing.

    if TYPE_CHECKING:
        from unspool.evaluate.teacher_forcing import perplexity as perplexity

    __all__, __getattr__, __dir__ = deferred(__name__)

The imports that type checkers read are the one list of these names: it is read here, too. (`x as x` tells
checkers that the name is public.)

No name may also be that of a file of the package: Python binds a file to its name as soon as anybody imports
it, and whoever asks afterwards would get the module.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__all__`, `__getattr__` and `__dir__`.

    Each name is looked up in its home when it is first asked for, and from then on known to the package.
    """
    homes = declared(sys.modules[package])
    names = sorted(homes, key=lambda name: (not (name.isupper() and len(name) > 1), name[:1].islower(), name))

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with gc_paused():
            value = _found(homes[name], name)
        setattr(sys.modules[package], name, value)
        return value

    return names, __getattr__, lambda: [*names, *(it for it in vars(sys.modules[package]) if it[:2] == "__")]


def _found(home: str, name: str) -> Any:
    """A name of a module, or a module of a package."""
    module = import_module(home)
    if not hasattr(module, name) and hasattr(module, "__path__"):
        return import_module(f"{home}.{name}")
    return getattr(module, name)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Python's collector of garbage rests inside the block.

    What large libraries make when they are imported stays. The collector looks through all of it again and
    again while it grows, and finds nothing: a fifth of the time to a first token. Behind the block it would
    look through all of that once more, as it does with whatever is new: what was made is counted among the
    old instead, which it looks at seldom.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if gc.get_freeze_count() == 0:  # else somebody has objects that are to stay frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def declared(module: ModuleType) -> dict[str, str]:
    """Name → home, of everything that a module's source imports for type checkers."""
    source = module.__spec__.loader.get_source(module.__name__)  # type: ignore[union-attr]
    found: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                assert isinstance(each, ast.ImportFrom)
                found |= {alias.name: str(each.module) for alias in each.names}
    return found
