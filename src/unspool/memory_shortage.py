"""Whether an error says that there is no more memory, whoever says it: Python, numpy, torch or the system."""

from __future__ import annotations

import errno


def is_shortage(error: Exception) -> bool:
    """True for a lack of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "allocate memory" in str(error)  # torch has no class for it
