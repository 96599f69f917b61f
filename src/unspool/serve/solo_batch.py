"""What `JoinedBatch` does, for models whose states cannot be joined: each asker is read by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from unspool.decode.sharing.joined_batch import Prompts
from unspool.protocols import Step, StepModel


@dataclass(eq=False)
class SoloLane:
    """One asker's own state."""

    state: Any
    size: int
    open: bool = True
    """False from when its asker has left."""


class SoloBatch:
    """A state for every asker."""

    def __init__(self, model: StepModel) -> None:
        self.model = model
        self._lanes: WeakSet[SoloLane] = WeakSet()
        self.read_tokens = self.shared_tokens = 0
        """Of prompts; what they have in common is read again."""

    @property
    def rows(self) -> int:
        """How many there are of lanes that somebody holds."""
        return sum(lane.size for lane in self._lanes if lane.open)

    def begin(self, asked: Sequence[Prompts]) -> list[tuple[Step, SoloLane] | Exception]:
        """Read the prompts of each asker; what went wrong, where it did."""
        found: list[tuple[Step, SoloLane] | Exception] = []
        for prompts in asked:
            try:
                step, state = self.model.start(prompts)
            except Exception as error:
                found.append(error)
            else:
                found.append((step, self._lane(state, prompts)))
        return found

    def read_all(self, prompts: Prompts) -> tuple[Tensor, Step, SoloLane]:
        """`PromptReading.read_all`."""
        assert self.model.prompt_reading is not None
        hidden_NTD, step, state = self.model.prompt_reading.read_all(prompts)
        return hidden_NTD, step, self._lane(state, prompts)

    def pick(self, lane: SoloLane, rows: Sequence[int]) -> None:
        """Reorder, repeat or drop the rows of a lane."""
        if list(rows) != list(range(lane.size)):
            lane.state, lane.size = lane.state.select(torch.tensor(rows)), len(rows)

    def extend(self, asked: Sequence[tuple[SoloLane, Tensor]]) -> list[Step | Exception]:
        """Append tokens (M, T) to each of the lanes."""
        found: list[Step | Exception] = []
        for lane, tokens_MT in asked:
            try:
                if tokens_MT.shape[1] == 1:
                    step, lane.state = self.model.step(lane.state, tokens_MT[:, 0])
                else:
                    assert self.model.rewindable is not None
                    step, lane.state = self.model.rewindable.extend(lane.state, tokens_MT)
            except Exception as error:
                found.append(error)
            else:
                found.append(step)
        return found

    def rewind(self, lane: SoloLane, tokens: int) -> None:
        """Forget the last tokens of a lane's rows."""
        assert self.model.rewindable is not None
        lane.state = self.model.rewindable.rewind(lane.state, tokens)

    def keep(self, lane: SoloLane) -> None:
        """Nothing is kept of those who have left."""

    def sweep(self) -> None:
        """Let go of the states of those who have left."""
        for lane in self._lanes:
            if not lane.open:
                lane.state = None

    def compact(self) -> None:
        """Hold no more memory than is needed."""
        self.sweep()

    def _lane(self, state: Any, prompts: Prompts) -> SoloLane:
        lane = SoloLane(state, len(prompts))
        self.read_tokens += sum(map(len, prompts))
        self._lanes.add(lane)
        return lane
