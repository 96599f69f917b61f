"""Where the rows of one asker stand in a batch that many share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class Lane:
    """The rows of one asker's state."""

    rows: list[int]
    columns: int | None = None
    """Places of the source that its Steps tell of; a batch-mate's source may be longer."""
    open: bool = True
    """False from when its asker has left."""
