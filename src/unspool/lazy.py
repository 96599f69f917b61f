"""Lazy imports: names of packages that are imported on first use, and optional dependencies.

    if TYPE_CHECKING:
        from unspool import evaluate as evaluate
        from unspool.evaluate.teacher_forcing import perplexity as perplexity

    __all__, __getattr__, __dir__ = lazy_exports(__name__)

The imports for type checkers are the only list of the names; `lazy_exports` parses them from the source.
(`x as x` tells type checkers that a name is public; `from package import *` stands for all names that this
package imports.) A submodule of the package becomes an attribute but is not part of `__all__`.

An exported name must differ from the package's module names: Python binds a submodule to its name on import,
which would replace the exported object.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def lazy_exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's `__all__`, `__getattr__` and `__dir__`."""
    module = sys.modules[package]
    origins = declared_imports(module)
    public = [name for name, origin in origins.items() if origin != package]
    public.sort(key=lambda name: (not (name.isupper() and len(name) > 1), name[:1].islower(), name))

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in origins:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with gc_paused():
            value = _import_name(origins[name], name, is_submodule=origins[name] == package)
        setattr(module, name, value)
        return value

    return public, __getattr__, lambda: sorted({*origins, *(key for key in vars(module) if key[:2] == "__")})


def _import_name(origin: str, name: str, is_submodule: bool) -> Any:
    module = import_module(f"{origin}.{name}" if is_submodule else origin)
    if is_submodule:
        return module
    if not hasattr(module, name) and hasattr(module, "__path__"):  # a submodule of another package
        return import_module(f"{origin}.{name}")
    return getattr(module, name)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector, and move objects created meanwhile to its oldest generation.

    Importing large libraries allocates many objects that live forever. The collector would scan them again
    and again while they grow, which takes a fifth of the time to the first token.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:  # objects frozen by the caller must stay frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def declared_imports(module: ModuleType) -> dict[str, str]:
    """Return name → module for each import under `if TYPE_CHECKING` in the module's source."""
    source = module.__spec__.loader.get_source(module.__name__)  # type: ignore[union-attr]
    origins: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                names, origin = [alias.name for alias in statement.names], str(statement.module)
                origins |= dict.fromkeys(_names_of_package(origin) if names == ["*"] else names, origin)
    return origins


def _names_of_package(package: str) -> list[str]:
    """The names that a package imports from its modules."""
    source = find_spec(package).loader.get_source(package)  # type: ignore[union-attr]
    imports = [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]
    return [alias.name for node in imports for alias in node.names]


def import_optional(name: str, why: str, package: str, extra: str) -> Any:
    """Import a module of an optional dependency, or raise an error that says how to install it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):
            raise
        message = f"{why} needs {package}: pip install 'unspool[{extra}]'"
        raise ModuleNotFoundError(message, name=error.name) from error


def sacrebleu_metrics() -> Any:
    """The module sacrebleu.metrics (BLEU, CHRF, TER)."""
    return import_optional("sacrebleu.metrics", "A measure such as BLEU", "sacrebleu", "evaluate")
