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

from numba import _dynfunc, config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.runtime import rtsys
from numba.core.typed_passes import NativeLowering

from unspool.io import cache_folder, private_folder

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


# How numba compiles a kernel that only other kernels call: as far as LLVM's language, and no further.
#
# numba optimises every function that it compiles together with all that it calls, and makes machine code of
# it: what lies six calls deep is optimised six times, and five of the results are thrown away. A kernel that
# Python does not call is worth nothing by itself. Here it is only written down, and the entry that it ends up
# in is optimised once, as a whole: half of the time to compile one.
#
# This leans on parts of numba that it does not document. Before the first kernel is compiled so, a small one
# is; where that fails, all are compiled as numba does it by itself: more slowly, to the same effect (`kernel`
# does so where a part is not there at all).


class InnerLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A kernel with all that it calls, to be linked into what calls it."""

    def _optimize_final_module(self) -> None:
        """Whoever calls it will do so."""

    def _finalize_final_module(self) -> None:
        """Without machine code."""
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class InnerLowering(NativeLowering):  # type: ignore[misc]
    """numba's step to LLVM's language, and not the one behind it."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Leave the kernel in state["cr"], under an object by which its callers find it."""
        state.flags.no_compile = True
        state.library = InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)
        made = state["cr"]
        module, name, nowhere = made.fndesc.lookup_module(), made.fndesc.qualname, 0
        found_by = _dynfunc.make_function(module, name, "", nowhere, made.env, (state.library,))
        state.targetctx.insert_user_function(found_by, made.fndesc, [state.library])
        state.reload_init.extend(getattr(state.library, "_reload_init", ()))  # before 0.63 there is none
        state["cr"] = made._replace(cfunc=found_by)
        return True


class ShortCompiler(Compiler):  # type: ignore[misc]
    """numba's own compiler but for its last step."""

    def define_pipelines(self) -> list[PassManager]:
        """All that it does, in order."""
        passes = PassManager("inner kernel")
        passes.passes = [
            (InnerLowering if step is NativeLowering else step, what)
            for step, what in DefaultPassBuilder.define_nopython_pipeline(self.state).passes
        ]
        passes.finalize()
        return [passes]


@cache
def works() -> bool:
    """Whether a kernel in a kernel comes out right with this numba."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": ShortCompiler}
    try:
        squared = njit(**options)(lambda x: x * x)
        more = njit(**options)(lambda x: squared(x) + 1)
        return bool(njit(lambda x: more(x))(3) == 10)
    except Exception:  # whatever another numba does, there is a way without this
        return False


class InnerCompiler(ShortCompiler):
    """The same, or numba's own where that fails."""

    def define_pipelines(self) -> list[PassManager]:
        """All that it does, in order."""
        pipelines: list[PassManager] = (ShortCompiler if works() else Compiler).define_pipelines(self)
        return pipelines
