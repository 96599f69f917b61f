"""A model that remembers what it has read: a text that begins as an earlier one is read from where they part.

    >>> model = Remembering(model); us.generate(model, history); us.generate(model, history + question)

What it says is the same, to the bit, as what the model says that reads it all again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor

from unspool.decode.sharing.joined_batch import JoinedBatch
from unspool.decode.sharing.lane import Lane, LaneState
from unspool.decode.stand_in import StandIn
from unspool.protocols import Step, StepModel


class Remembering(StandIn):
    """For one thread, and for models whose rows can be forked (`Abilities.forking`)."""

    def __init__(self, model: StepModel, kept_bytes: int) -> None:
        super().__init__(model)
        if model.joining is None or model.forking is None:
            raise ValueError("this model reads every text from its beginning: its steps are not compiled")
        self.batch = JoinedBatch(model, model.joining, kept_bytes)
        self._last: Lane | None = None

    @property
    def rewindable(self) -> Self | None:
        """Itself, where the model can rewind."""
        return None if self.model.rewindable is None else self

    @property
    def prompt_reading(self) -> Self | None:
        """Itself, where the model can tell."""
        return None if self.model.prompt_reading is None else self

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, LaneState]:
        """Read what no earlier text has in common with the prompts."""
        if self._last is not None:
            self.batch.keep(self._last)
        (found,) = self.batch.begin([prompts])
        if isinstance(found, Exception):
            raise found
        step, lane = found
        return step, self._own(lane)

    def read_all(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Step, LaneState]:
        """`start`, with the hidden vectors of the prompts before it: these are read from their beginning."""
        hidden_NTD, step, lane = self.batch.read_all(prompts)
        return hidden_NTD, step, self._own(lane)

    def step(self, state: LaneState, tokens_N: Tensor) -> tuple[Step, LaneState]:
        """Append one token to every row."""
        return self.extend(state, tokens_N[:, None])

    def extend(self, state: LaneState, tokens_NT: Tensor) -> tuple[Step, LaneState]:
        """Append T tokens to every row."""
        self.batch.pick(state.lane, state.rows)
        (said,) = self.batch.extend([(state.lane, tokens_NT)])
        if isinstance(said, Exception):
            raise said
        return said, _still(state.lane)

    def rewind(self, state: LaneState, tokens: int) -> LaneState:
        """Forget the last `tokens` tokens of every row."""
        self.batch.pick(state.lane, state.rows)
        self.batch.rewind(state.lane, tokens)
        return _still(state.lane)

    def _own(self, lane: Lane) -> LaneState:
        self._last = lane
        return _still(lane)


def _still(lane: Any) -> LaneState:
    return LaneState(lane, tuple(range(len(lane.rows))))
