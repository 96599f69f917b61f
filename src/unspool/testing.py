"""Fake models with exactly known distributions, for tests.

They are as strict as real ones. A row that outgrows the context, a token outside the vocabulary, a tensor
of the wrong shape or type, and a state that was used before (real models write over theirs) are errors here,
too; and what a Step holds cannot be written to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from unspool.interfaces import Abilities, Step, TokenizerLike


@dataclass
class TableState:
    """State of a table model: the tokens of every row."""

    rows: tuple[tuple[int, ...], ...]
    new: tuple[int, ...] = field(default=(), compare=False)
    """How many of them came after the prompt, in each row."""
    spent: bool = field(default=False, compare=False)
    """Whether it has been used: the state that came of it is the one to go on from."""

    def __post_init__(self) -> None:
        self.new = self.new or (0,) * len(self.rows)

    def select(self, rows_M: Tensor) -> TableState:
        """Reorder, repeat or drop rows."""
        rows = _whole_numbers("rows", rows_M, 1).tolist()
        if not rows or not 0 <= min(rows) <= max(rows) < len(self.rows):
            raise ValueError(
                f"rows {rows} were asked of a state that has rows 0…{len(self.rows) - 1}: choose at least "
                "one, and only rows that there are"
            )
        self.spend()
        return TableState(tuple(self.rows[row] for row in rows), tuple(self.new[row] for row in rows))

    def spend(self) -> None:
        """Refuse a state that was used before, and make this one such a state."""
        if self.spent:
            raise ValueError(
                "this state was used before, and a real model would have written over it: go on from the "
                "state that step, select, extend or rewind gave back"
            )
        self.spent = True


@dataclass(frozen=True)
class TableModel(Abilities):
    """A model that looks its next-token probabilities up in a function of the whole row.

    >>> coin = TableModel(lambda row: [0.5, 0.5])
    """

    table: Callable[[tuple[int, ...]], Sequence[float]]
    """All tokens so far → the probability of each next token."""
    context: int | None = None
    tokenizer: TokenizerLike | None = None

    @cached_property
    def vocab_size(self) -> int:
        """As long as the table's answers."""
        return len(self.table((0,)))

    @property
    def rewindable(self) -> Self:
        """It can forget what it has read."""
        return self

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, TableState]:
        """Remember the prompts."""
        rows = tuple(tuple(prompt) for prompt in prompts)
        if not rows or not all(rows):
            raise ValueError(f"the prompts are {list(rows)}: give at least one, each of at least one token")
        for token in (token for row in rows for token in row):
            if not isinstance(token, int) or isinstance(token, bool):
                raise TypeError(f"a prompt holds {token!r}: token ids are whole numbers")
        self._check(rows)
        return self._said(TableState(rows))

    def step(self, state: TableState, tokens_N: Tensor) -> tuple[Step, TableState]:
        """Remember one more token of every row."""
        tokens = _whole_numbers("tokens", tokens_N, 1).tolist()
        if len(tokens) != len(state.rows):
            raise ValueError(f"{len(tokens)} tokens came for {len(state.rows)} rows: give one for each row")
        grown = tuple((*row, token) for row, token in zip(state.rows, tokens, strict=True))
        self._check(grown)
        state.spend()
        return self._said(TableState(grown, tuple(new + 1 for new in state.new)))

    def extend(self, state: TableState, tokens_NT: Tensor) -> tuple[Step, TableState]:
        """Remember T more tokens of every row; the Step has T rows for each of them."""
        if _whole_numbers("tokens", tokens_NT, 2).shape[1] == 0:
            raise ValueError("there is no token to extend the rows by: give at least one for each row")
        steps = []
        for tokens_N in tokens_NT.unbind(1):
            step, state = self.step(state, tokens_N)
            steps.append(step.logp_NV)
        return Step(torch.stack(steps, dim=1).flatten(0, 1)), state

    def rewind(self, state: TableState, tokens: int) -> TableState:
        """Forget the last tokens of every row."""
        return self.rewind_rows(
            state, torch.arange(len(state.rows)), torch.tensor([tokens] * len(state.rows))
        )

    @property
    def joining(self) -> Self:
        """Rows of several requests may share a state."""
        return self

    def join(self, states: Sequence[TableState]) -> TableState:
        """The rows of all states, one behind the other."""
        for state in states:
            state.spend()
        rows = tuple(row for state in states for row in state.rows)
        return TableState(rows, tuple(new for state in states for new in state.new))

    def extend_rows(self, state: TableState, rows_M: Tensor, tokens_MT: Tensor) -> tuple[Step, TableState]:
        """Remember T more tokens of some rows; the Step has T rows for each of these."""
        rows = _whole_numbers("rows", rows_M, 1).tolist()
        tokens = _whole_numbers("tokens", tokens_MT, 2).tolist()
        if rows != sorted(set(rows)) or len(rows) != len(tokens):
            raise ValueError(
                f"rows {rows} are to be extended by {tokens}: name each row once, in their order"
            )
        added = dict(zip(rows, tokens, strict=True))
        grown = tuple((*row, *added.get(n, ())) for n, row in enumerate(state.rows))
        self._check(grown)
        read = [(*state.rows[row], *added[row][: t + 1]) for row in rows for t in range(len(added[row]))]
        step, _ = self._said(TableState(tuple(read)))
        state.spend()  # only now: where it fails, the state is as it was
        return step, TableState(grown, tuple(new + len(added.get(n, ())) for n, new in enumerate(state.new)))

    def rewind_rows(self, state: TableState, rows_M: Tensor, tokens_M: Tensor) -> TableState:
        """Forget the last tokens of some rows."""
        fewer = dict(zip(rows_M.tolist(), tokens_M.tolist(), strict=True))
        for row, tokens in fewer.items():
            if not 0 <= tokens <= state.new[row]:
                raise ValueError(
                    f"{tokens} tokens cannot be forgotten of rows that have {state.new[row]} after their "
                    "prompt: forget what was added, and nothing of a prompt"
                )
        state.spend()
        rows = tuple(row[: len(row) - fewer.get(n, 0)] for n, row in enumerate(state.rows))
        return TableState(rows, tuple(new - fewer.get(n, 0) for n, new in enumerate(state.new)))

    @property
    def forking(self) -> Self:
        """Rows may begin as parts of others."""
        return self

    def fork_rows(self, state: TableState, rows_K: Tensor, lengths_K: Tensor) -> TableState:
        """Append rows that are prefixes of existing ones."""
        pairs = zip(_whole_numbers("rows", rows_K, 1).tolist(), lengths_K.tolist(), strict=True)
        forks = []
        for row, length in pairs:
            if not 0 <= row < len(state.rows) or not 0 <= length <= len(state.rows[row]):
                raise ValueError(
                    f"{length} tokens of row {row} were asked of rows of {[len(it) for it in state.rows]} "
                    "tokens: choose a row that there is, and no more than it has"
                )
            forks.append(state.rows[row][:length])
        state.spend()
        return TableState((*state.rows, *forks), (*state.new, *(0 for _ in forks)))

    def read_rows(
        self, state: TableState, rows_M: Tensor, texts: Sequence[Sequence[int]]
    ) -> tuple[Step, TableState]:
        """Remember texts of any lengths behind some rows; the Step has a row for each of these."""
        rows = _whole_numbers("rows", rows_M, 1).tolist()
        if rows != sorted(set(rows)) or len(rows) != len(texts) or not all(texts):
            raise ValueError(
                f"rows {rows} are to read {list(texts)}: name each row once, in their order, each with at "
                "least one token"
            )
        added = {row: tuple(text) for row, text in zip(rows, texts, strict=True)}
        grown = tuple((*row, *added.get(n, ())) for n, row in enumerate(state.rows))
        self._check(grown)
        step, _ = self._said(TableState(tuple(grown[row] for row in rows)))
        state.spend()
        return step, TableState(grown, state.new)

    def bytes_held(self, state: TableState, rows_M: Tensor) -> int:
        """Count one byte per token of every different prefix."""
        rows = [state.rows[row] for row in rows_M.tolist()]
        return len({row[: t + 1] for row in rows for t in range(len(row))})

    def compact(self, state: TableState) -> TableState:
        """The same rows: they hold nothing else."""
        state.spend()
        return TableState(state.rows, state.new)

    def _check(self, rows: tuple[tuple[int, ...], ...]) -> None:
        size, longest = self.vocab_size, max(map(len, rows))
        outside = sorted({token for row in rows for token in row if not 0 <= token < size})
        if outside:
            raise ValueError(f"the tokens {outside} are outside the vocabulary 0…{size - 1} of this model")
        if self.context is not None and longest > self.context:
            raise ValueError(
                f"a row has {longest} tokens, and this model's context holds {self.context}: stop before"
            )

    # Real models return read-only tensors.
    @torch.inference_mode()
    def _said(self, state: TableState) -> tuple[Step, TableState]:
        said = [list(self.table(row)) for row in state.rows]
        sizes = {len(p) for p in said}
        if sizes != {self.vocab_size}:
            raise ValueError(
                f"the table gave {sorted(sizes)} probabilities, and {self.vocab_size} for the row (0,): give "
                "one for each token, whatever the row"
            )
        return Step(torch.tensor(said, dtype=torch.float32).log()), state


def _whole_numbers(name: str, values: Tensor, dimensions: int) -> Tensor:
    """Refuse anything but a tensor of ids as an embedding takes them."""
    if not isinstance(values, Tensor) or values.dtype not in (torch.long, torch.int):
        said = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"{name} are {said}, but must be a tensor of whole numbers, torch.long")
    if values.dim() != dimensions:
        raise ValueError(
            f"{name} have the shape {tuple(values.shape)}, but must have {dimensions} dimensions"
        )
    return values


def bigram(rows: Sequence[Sequence[float]], tokenizer: TokenizerLike | None = None) -> TableModel:
    """A table model that sees the last token only: rows[i][j] = p(j | i)."""
    return TableModel(lambda row: rows[row[-1]], tokenizer=tokenizer)


def trigram(table: Callable[[int, int], Sequence[float]]) -> TableModel:
    """A table model that sees the last two tokens (the first one counts twice)."""
    return TableModel(lambda row: table(row[-2] if len(row) > 1 else row[-1], row[-1]))


def random_table(vocab_size: int, seed: int, order: int = 2, spread: float = 2.0) -> TableModel:
    """A fixed random model whose next token depends on the last `order` tokens."""

    def table(row: tuple[int, ...]) -> Sequence[float]:
        key = hash((seed, *row[-order:])) & 0x7FFFFFFF
        logits = spread * torch.randn(vocab_size, generator=torch.Generator().manual_seed(key))
        p: list[float] = logits.softmax(-1).tolist()
        return p

    return TableModel(table)
