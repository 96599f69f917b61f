"""How numba compiles a kernel that only other kernels call: as far as LLVM's language, and no further.

numba optimises every function that it compiles together with all that it calls, and makes machine code of it:
what lies six calls deep is optimised six times, and five of the results are thrown away. A kernel that Python
does not call is worth nothing by itself. Here it is only written down, and the entry that it ends up in is
optimised once, as a whole: half of the time to compile one.

This leans on parts of numba that it does not document. Before the first kernel is compiled so, a small one
is; where that fails, all are compiled as numba does it by itself: more slowly, to the same effect (`kernel`
does so where a part is not there at all).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import _dynfunc, njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering


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
