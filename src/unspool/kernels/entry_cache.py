"""Where entries are kept on disk: numba's own files, read without getting ready to compile.

Before numba looks for a function on disk it imports all that it might need if it does not find it: every
function of NumPy's that it knows, and scipy's linear algebra. That takes longer than a first token. Here it
does so only when there is something to compile.

numba keeps what it has compiled as pickles, which can run code when they are read. They are written and read
only in a folder that no other user can write to, below the user's cache folder (UNSPOOL_CACHE) or
NUMBA_CACHE_DIR. If there is no such folder, or its disk is full, one warning says so, and kernels are
compiled for this process alone.

This leans on parts of numba that it does not document. If they change, nothing is kept.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys

from unspool.files.cache import cache_folder, private_folder

OTHERWISE = (AttributeError, TypeError)
"""What it comes to when a part has another shape."""


class PrivateFolder:
    """Tells numba where the compiled code of one function is kept."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename
        self._line = function.__code__.co_firstlineno
        self._path = _folder(str(Path(self._py_file).parent))

    def get_cache_path(self) -> str:
        """The folder."""
        return self._path

    def ensure_cache_path(self) -> None:
        """Before anything is written: it is still there, and still nobody else's."""
        private_folder(Path(self._path))

    def get_source_stamp(self) -> bytes:
        """Changes whenever the source file does."""
        return hashlib.sha256(Path(self._py_file).read_bytes()).digest()

    def get_disambiguator(self) -> str:
        """Tells functions of one name in one file apart."""
        return str(self._line)


@cache
def _folder(sources: str) -> str:
    """Where the kernels of one source folder are kept."""
    root = Path(config.CACHE_DIR) if config.CACHE_DIR else cache_folder() / "kernels"
    name = hashlib.sha256(sources.encode()).hexdigest()[:24]
    return str(private_folder(root / f"{Path(sources).name}_{name}"))


class PrivateImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """numba's way to write compiled code down, in a `PrivateFolder`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = PrivateFolder(function)
        name = f"{Path(self._locator._py_file).stem}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, getattr(sys, "abiflags", ""))


@cache
def _warn(problem: str) -> None:
    warnings.warn(
        f"compiled code is not kept on disk and will be compiled again by the next process: {problem}",
        RuntimeWarning,
        stacklevel=2,
    )


class EntryCache(FunctionCache):  # type: ignore[misc]
    """What was compiled of one function, by the types of its arguments."""

    _impl_class = PrivateImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for these types, or None."""
        try:
            rtsys.initialize(target_context)  # the counting of references, which compiled code may call
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except OTHERWISE:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged file fails in any way; it is compiled again and written over
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it, if the disk has room."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self.disable()
            _warn(f"{self.cache_path}: {error.strerror or error}")
        except Exception:  # a damaged index
            self.flush()
            super().save_overload(sig, data)


def _cache_of(function: Callable[..., Any]) -> Any:
    """Where the function is kept; None, with a warning, if there is no place for it."""
    try:
        return EntryCache(function)
    except OSError as error:
        _warn(str(error))
    except OTHERWISE:
        _warn("this version of numba is unknown")
    return None


def keep(compiled: Any) -> None:
    """Keep on disk what is compiled of a function."""
    found = _cache_of(compiled.py_func)
    if found is not None:
        compiled._cache = found


def early_callback(kind: Any, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """numba's `cfunc`, which reads before it can be told how; None where it is put together otherwise."""
    try:
        compiled: Any = CFunc(function, (kind.args, kind.return_type), locals={}, options=options)
        compiled._cache = _cache_of(function) or compiled._cache
        compiled.compile()
    except OTHERWISE:
        return None
    return compiled
