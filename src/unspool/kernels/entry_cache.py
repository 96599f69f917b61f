"""Where entries are kept on disk: numba's own files, read without getting ready to compile.

Before numba looks for a function on disk it imports all that it might need if it does not find it: every
function of NumPy's that it knows, and scipy's linear algebra. That takes longer than a first token. Here it
does so only when there is something to compile.
"""

from __future__ import annotations

from typing import Any

from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys


class EntryCache(FunctionCache):  # type: ignore[misc]
    """What was compiled of one function, by the types of its arguments."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is kept for these types, or None."""
        rtsys.initialize(target_context)  # the counting of references, which compiled code may call
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
