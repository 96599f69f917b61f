"""Small models whose distributions are known exactly: for tests, of this house and of yours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unspool.protocols import Step, Text


@dataclass(frozen=True)
class TableState:
    """What a table model remembers: every row's tokens."""

    rows: tuple[tuple[int, ...], ...]

    def select(self, rows_M: Tensor) -> TableState:
        """Reorder, repeat or drop rows."""
        return TableState(tuple(self.rows[row] for row in rows_M.tolist()))


@dataclass(frozen=True)
class TableModel:
    """A model that looks its next-token probabilities up in a function of the whole row.

    >>> coin = TableModel(lambda row: [0.5, 0.5])
    """

    table: Callable[[tuple[int, ...]], Sequence[float]]
    """All tokens so far → the probability of each next token."""
    context: int | None = None
    text: Text | None = None

    @property
    def vocab_size(self) -> int:
        """As long as the table's answers."""
        return len(self.table((0,)))

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, TableState]:
        """Remember the prompts."""
        return self._said(TableState(tuple(tuple(prompt) for prompt in prompts)))

    def step(self, state: TableState, tokens_N: Tensor) -> tuple[Step, TableState]:
        """Remember one more token of every row."""
        grown = tuple((*row, token) for row, token in zip(state.rows, tokens_N.tolist(), strict=True))
        return self._said(TableState(grown))

    def extend(self, state: TableState, tokens_NT: Tensor) -> tuple[Tensor, TableState]:
        """Remember T more tokens of every row."""
        steps = []
        for tokens_N in tokens_NT.unbind(1):
            step, state = self.step(state, tokens_N)
            steps.append(step.logp_NV)
        return torch.stack(steps, dim=1), state

    def rewind(self, state: TableState, tokens: int) -> TableState:
        """Forget the last tokens of every row."""
        return TableState(tuple(row[: len(row) - tokens] for row in state.rows))

    def _said(self, state: TableState) -> tuple[Step, TableState]:
        p_NV = torch.tensor([list(self.table(row)) for row in state.rows], dtype=torch.float32)
        return Step(p_NV.log()), state


def bigram(rows: Sequence[Sequence[float]], text: Text | None = None) -> TableModel:
    """A table model that sees the last token only: rows[i][j] = p(j | i)."""
    return TableModel(lambda row: rows[row[-1]], text=text)


def trigram(table: Callable[[int, int], Sequence[float]]) -> TableModel:
    """A table model that sees the last two tokens (the last one twice at the very beginning)."""
    return TableModel(lambda row: table(row[-2] if len(row) > 1 else row[-1], row[-1]))


def random_table(vocab_size: int, seed: int, order: int = 2, spread: float = 2.0) -> TableModel:
    """A fixed random model whose next token depends on the last `order` tokens."""

    def table(row: tuple[int, ...]) -> Sequence[float]:
        key = hash((seed, *row[-order:])) & 0x7FFFFFFF
        logits = spread * torch.randn(vocab_size, generator=torch.Generator().manual_seed(key))
        p: list[float] = logits.softmax(-1).tolist()
        return p

    return TableModel(table)
