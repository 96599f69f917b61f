"""Everything that depends on undocumented parts of numba: a disk cache and a quick compiler for kernels.

If these parts change, `kernel` falls back to numba's documented decorators: kernels compile more slowly and
are not cached on disk, but compute the same.

Disk cache: before numba looks for a function on disk it imports everything that compiling might need, which
takes longer than a first token. Here this is imported only to compile. A change in any file of this package
compiles an entry again; numba checks only the entry's own file. Cached code is a pickle, which can run code
when it is read, so it is written to and read from only a folder that no other user can write to: below the
user's cache folder (UNSPOOL_CACHE) or NUMBA_CACHE_DIR. If such a folder cannot be made or the disk is full,
one warning is shown and kernels are compiled for this process alone.

Quick compiler: numba optimises each function together with everything that it calls and emits machine code,
so a kernel six calls deep is optimised six times. A kernel that only other kernels call is lowered to LLVM IR
here; the entry that contains it is optimised once, as a whole. That halves the time to compile an entry.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys

from unspool.io import cache_folder, private_folder

CHANGED = (AttributeError, TypeError)
"""Errors that mean that numba has changed."""


def source_fingerprint(folder: Path) -> bytes:
    """A hash of all Python files of a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


KERNEL_FINGERPRINT = source_fingerprint(Path(__file__).parent)


@cache
def _kernel_folder(sources: Path) -> Path:
    """The folder for the kernels of one source folder."""
    root = Path(config.CACHE_DIR) if config.CACHE_DIR else cache_folder() / "kernels"
    name = hashlib.sha256(str(sources).encode()).hexdigest()[:24]
    return private_folder(root / f"{sources.name}_{name}")


class PrivateCacheImpl(CompileResultCacheImpl):  # type: ignore[misc]
    """numba's interfaces for the serialisation of one function's compiled code and for its place on disk."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._locator = self
        self._lineno = function.__code__.co_firstlineno
        self._py_file = Path(function.__code__.co_filename)
        self._folder = _kernel_folder(self._py_file.parent)
        checks = ".checked" if config.BOUNDSCHECK else ""
        name = f"{self._py_file.stem}.{function.__qualname__}{checks}"
        self._filename_base = self.get_filename_base(name, getattr(sys, "abiflags", ""))

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._folder)

    def ensure_cache_path(self) -> None:
        """Check before a write that the folder exists and is private."""
        private_folder(self._folder)

    def get_source_stamp(self) -> bytes:
        """A hash of the function's file and of all kernels, which it may contain."""
        return KERNEL_FINGERPRINT + hashlib.sha256(self._py_file.read_bytes()).digest()

    def get_disambiguator(self) -> str:
        """Distinguishes functions of one name in one file."""
        return str(self._lineno)


@cache
def _warn(problem: str) -> None:
    warnings.warn(
        f"compiled code is not cached on disk and the next process compiles it again: {problem}",
        RuntimeWarning,
        stacklevel=2,
    )


class EntryCache(FunctionCache):  # type: ignore[misc]
    """The compiled versions of one function, by the types of its arguments."""

    _impl_class = PrivateCacheImpl

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Types and processor; numba's key contains a closure, which differs between processes.

        So functions that are generated from one definition need different names.
        """
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The version for these types; None if it is not cached or its file is damaged."""
        try:
            rtsys.initialize(target_context)  # reference counting, which compiled code may call
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except CHANGED:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged file raises anything; it is compiled again and overwritten
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a version to disk; warn if the disk is full."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self.disable()
            _warn(f"{self.cache_path}: {error.strerror or error}")
        except Exception:  # a damaged index
            self.flush()
            super().save_overload(sig, data)


def _entry_cache(function: Callable[..., Any]) -> Any:
    """The function's disk cache; None, with a warning, if it cannot have one."""
    try:
        return EntryCache(function)
    except OSError as error:
        _warn(str(error))
    except CHANGED:
        _warn("this version of numba is unknown")
    return None


def cache_on_disk(compiled: Any) -> None:
    """Cache a compiled function on disk."""
    entry_cache = _entry_cache(compiled.py_func)
    if entry_cache is not None:
        compiled._cache = entry_cache


def cached_callback(signature: Any, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """numba's `cfunc` with this disk cache; None if numba has changed."""
    try:
        compiled: Any = CFunc(function, (signature.args, signature.return_type), locals={}, options=options)
        compiled._cache = _entry_cache(function) or compiled._cache
        compiled.compile()
    except CHANGED:
        return None
    return compiled


KERNEL_OPTIONS: dict[str, Any] = {}
"""Options of `njit` for kernels; empty if numba has changed."""

try:
    from numba import _dynfunc
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler, DefaultPassBuilder
    from numba.core.compiler_machinery import PassManager, register_pass
    from numba.core.typed_passes import NativeLowering

    class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
        """The LLVM IR of a kernel and everything that it calls, to be linked into its callers."""

        def _optimize_final_module(self) -> None:
            """Leave it to the entry."""

        def _finalize_final_module(self) -> None:
            """Finish without machine code."""
            self._finalize_dynamic_globals()
            self._finalized = True

    @register_pass(mutates_CFG=True, analysis_only=False)
    class KernelLowering(NativeLowering):  # type: ignore[misc]
        """numba's lowering to LLVM IR, without the step to machine code."""

        _name = "kernel_lowering"

        def run_pass(self, state: Any) -> bool:
            """Leave the kernel in state["cr"], under an object by which its callers find it."""
            state.flags.no_compile = True
            state.library = KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            super().run_pass(state)
            result = state["cr"]
            module, name, no_address = result.fndesc.lookup_module(), result.fndesc.qualname, 0
            handle = _dynfunc.make_function(module, name, "", no_address, result.env, (state.library,))
            state.targetctx.insert_user_function(handle, result.fndesc, [state.library])
            state.reload_init.extend(getattr(state.library, "_reload_init", ()))  # missing before numba 0.63
            state["cr"] = result._replace(cfunc=handle)
            return True

    class LoweringCompiler(Compiler):  # type: ignore[misc]
        """numba's compiler with `KernelLowering` as its last step."""

        def define_pipelines(self) -> list[PassManager]:
            """The passes in order."""
            passes = PassManager("kernel")
            passes.passes = [
                (KernelLowering if step is NativeLowering else step, description)
                for step, description in DefaultPassBuilder.define_nopython_pipeline(self.state).passes
            ]
            passes.finalize()
            return [passes]

    @cache
    def lowering_works() -> bool:
        """True if a small kernel inside another one computes the right result with this numba."""
        options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": LoweringCompiler}
        try:
            square = njit(**options)(lambda x: x * x)
            square_plus_one = njit(**options)(lambda x: square(x) + 1)
            return bool(njit(lambda x: square_plus_one(x))(3) == 10)
        except Exception:  # an unknown numba may raise anything
            return False

    class KernelCompiler(LoweringCompiler):
        """`LoweringCompiler` if it works with this numba, else numba's own compiler."""

        def define_pipelines(self) -> list[PassManager]:
            """The passes in order."""
            base = LoweringCompiler if lowering_works() else Compiler
            pipelines: list[PassManager] = base.define_pipelines(self)
            return pipelines

    # Only kernels call a kernel, so wrappers for Python and C are left out. It does not count references to
    # arrays: the caller of an entry holds all arrays until the entry returns, and atomic counters would slow
    # threads down.
    KERNEL_OPTIONS |= {
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "_nrt": False,
        "pipeline_class": KernelCompiler,
    }
except (ImportError, *CHANGED):
    pass
