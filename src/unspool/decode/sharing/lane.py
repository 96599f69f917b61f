"""Where the rows of one asker stand in a batch that many share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(eq=False)
class Lane:
    """The rows of one asker's state."""

    rows: list[int]
    columns: int | None = None
    """Places of the source that its Steps tell of; a batch-mate's source may be longer."""
    open: bool = True
    """False from when its asker has left."""


@dataclass(frozen=True, slots=True)
class LaneState:
    """Rows of a lane, as they are to be when the model is next asked about them."""

    lane: Lane
    rows: tuple[int, ...]

    def select(self, rows_M: Tensor) -> LaneState:
        """Reorder, repeat or drop rows: it is done before the next step."""
        return replace(self, rows=tuple(self.rows[row] for row in rows_M.tolist()))
