"""Where entries are kept on disk: numba's own files, read without getting ready to compile.

Before numba looks for a function on disk it imports all that it might need if it does not find it: every
function of NumPy's that it knows, and scipy's linear algebra. That takes longer than a first token. Here it
does so only when there is something to compile.

This leans on parts of numba that it does not document. Where they are others, numba looks in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys

OTHERWISE = (AttributeError, TypeError)
"""What it comes to when a part has another shape."""


class EntryCache(FunctionCache):  # type: ignore[misc]
    """What was compiled of one function, by the types of its arguments."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for these types, or None."""
        try:
            rtsys.initialize(target_context)  # the counting of references, which compiled code may call
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except OTHERWISE:
            return super().load_overload(sig, target_context)


def read_early(compiled: Any) -> None:
    """Let what numba keeps of a compiled function be read so."""
    if isinstance(getattr(compiled, "_cache", None), FunctionCache):
        compiled._cache = EntryCache(compiled.py_func)


def early_callback(kind: Any, function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """numba's `cfunc`, which reads before it can be told how; None where it is put together otherwise."""
    try:
        compiled: Any = CFunc(function, (kind.args, kind.return_type), locals={}, options=options)
        compiled.enable_caching()
        compiled._cache = EntryCache(function)
        compiled.compile()
    except OTHERWISE:
        return None
    return compiled
