"""Which text stands in which row of vLLM's batch, under its V1 model runner.

Before each step it tells what has changed: requests that left, that came (each with a list that goes on
growing as its tokens are known), and that changed places.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from unspool.adapters.vllm.running_text import UNTOLD, RunningText
from unspool.adapters.vllm.running_texts import RunningTexts


class BatchRows:
    """The rows of a batch that are ours to write."""

    def __init__(self, texts: RunningTexts) -> None:
        self._texts = texts
        self._rows: dict[int, tuple[RunningText, Any]] = {}
        """Row → its text, and the request: its parameters, prompt and the list of its tokens."""

    def update_state(self, update: Any) -> None:
        """Follow vLLM's BatchUpdate; None where the batch is as it was."""
        if update is None:
            return
        for row in update.removed:
            self._leave(row)
        for row, params, prompt, tokens in update.added:
            self._leave(row)  # one that came may stand where another stood
            text = self._texts.begin(params, prompt, tokens)
            if text is not None:
                self._rows[row] = text, (params, prompt, tokens)
        for source, target, direction in update.moved:
            self._move(source, target, swapped=direction.name == "SWAP")

    def apply(self, logits_NV: Tensor) -> Tensor:
        """(N, V) → (N, V), written over."""
        self._texts.draw(logits_NV, [(row, self._followed(row)) for row in sorted(self._rows)])
        return logits_NV

    def _followed(self, row: int) -> RunningText:
        text, request = self._rows[row]
        params, prompt, tokens = request
        if text.fault is None and not text.follow(len(tokens), tokens[-1] if tokens else UNTOLD):
            text = self._texts.begin(params, prompt, tokens) or text
            self._rows[row] = text, request
        return text

    def _leave(self, row: int) -> None:
        found = self._rows.pop(row, None)
        if found is not None:
            self._texts.leave(found[0])

    def _move(self, source: int, target: int, *, swapped: bool) -> None:
        moved, there = self._rows.pop(source, None), self._rows.pop(target, None)
        if moved is not None:
            self._rows[target] = moved
        if there is None:
            return
        if swapped:
            self._rows[source] = there
        else:
            self._texts.leave(there[0])
