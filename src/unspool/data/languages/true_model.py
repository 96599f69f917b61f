"""The truth as a model: a language with a known truth, decoded like any other model.

    log p(· | prefix), as the language says it; after EOS comes EOS

Searches, samplers and measures run on it unchanged: what a decoder does to a perfect model is the decoder's
doing.
A prompt is a prefix of the language, with or without BOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.data.languages.known_language import KnownLanguage, Probabilities
from unspool.protocols import Abilities, Step
from unspool.text.codec import Codec


@dataclass(frozen=True)
class TrueState:
    """The language's own state in every row; None once a row has ended."""

    rows: tuple[Any, ...]

    def select(self, rows_M: Tensor) -> TrueState:
        """Reorder, repeat or drop rows."""
        return TrueState(tuple(self.rows[row] for row in rows_M.tolist()))


@dataclass(frozen=True)
class TrueModel(Abilities):
    """A StepModel that knows the language by heart."""

    language: KnownLanguage[Any]

    @property
    def vocab_size(self) -> int:
        """The language's."""
        return self.language.vocab_size

    @property
    def context(self) -> None:
        """No limit."""
        return

    @cached_property
    def text(self) -> Codec:
        """The tokenizer whose ids are the language's."""
        return self.language.codec()

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, TrueState]:
        """Read the prompts; one that the language cannot speak is a ValueError."""
        return self._said(TrueState(tuple(self.language.state(prompt) for prompt in prompts)))

    def step(self, state: TrueState, tokens_N: Tensor) -> tuple[Step, TrueState]:
        """One more token in every row."""
        rows = zip(state.rows, tokens_N.tolist(), strict=True)
        return self._said(TrueState(tuple(self._after(row, token) for row, token in rows)))

    def _after(self, row: Any, token: int) -> Any:
        if row is None or token == self.language.eos:
            return None
        if not self.language.chance(row, token) > 0.0:
            raise ValueError(
                f"token {token} cannot come here, in the language; a transform or a search has forced it: "
                "the truth has nothing to say after it"
            )
        return self.language.after(row, token)

    def _said(self, state: TrueState) -> tuple[Step, TrueState]:
        rows_NV = np.stack([self._chances(row) for row in state.rows])
        return Step(torch.from_numpy(rows_NV).log().float()), state

    def _chances(self, row: Any) -> Probabilities:
        if row is not None:
            return self.language.chances(row)
        ended = np.zeros(self.vocab_size)
        ended[self.language.eos] = 1.0
        return ended
