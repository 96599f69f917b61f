"""Which rows are held out for validation: a share or a number of them, drawn by a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unspool.data.random_orders import shuffled


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """How much of the training data is kept for validation, where no data of its own is given for it."""

    valid_share: float = 0.0
    """The share of the rows that is held out to validate on, from 0 to 1."""
    valid_lines: int = 0
    """The number of rows that are held out to validate on."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.valid_share < 1.0:
            raise ValueError(f"valid_share is {self.valid_share}; it must be at least 0 and less than 1")
        if self.valid_lines < 0:
            raise ValueError(f"valid_lines is {self.valid_lines}; it must be 0 or more")
        if self.valid_share and self.valid_lines:
            raise ValueError("valid_share and valid_lines are both given: choose one of them")

    @property
    def holds_out(self) -> bool:
        """Whether any row is held out."""
        return bool(self.valid_share or self.valid_lines)

    @property
    def hangs_together(self) -> bool:
        """Whether neighbouring rows do, so that the last ones are held out instead of random ones."""
        return False

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:
        """For each of `count` rows, whether it is held out."""
        mask = np.zeros(count, dtype=np.bool_)
        if not self.holds_out:
            return mask
        wanted = self.valid_lines or max(1, round(self.valid_share * count))
        if wanted >= count:
            raise ValueError(
                f"{wanted} rows are to be held out for validation, but there are only {count}: nothing would "
                "be left to train on"
            )
        mask[np.arange(count - wanted, count) if self.hangs_together else shuffled(count, seed)[:wanted]] = (
            True
        )
        return mask
