"""Fake models with exactly known distributions, for tests.

They are as strict as real ones: a row longer than the context, a token outside the vocabulary, a tensor of
the wrong shape or type, and a state that was used before (real models overwrite theirs) are errors. The
tensors of a Step are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """The number of tokens after the prompt, for each row."""
    is_used: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        self.new = self.new or (0,) * len(self.rows)

    def select(self, rows_M: Tensor) -> TableState:
        rows = _check_ids("rows", rows_M, 1).tolist()
        if not rows or not 0 <= min(rows) <= max(rows) < len(self.rows):
            raise ValueError(
                f"cannot select rows {rows}: the state has rows 0…{len(self.rows) - 1}; select at least one"
            )
        self.use()
        return TableState(tuple(self.rows[row] for row in rows), tuple(self.new[row] for row in rows))

    def use(self) -> None:
        """Mark the state as used; ValueError if it was used before."""
        if self.is_used:
            raise ValueError(
                "this state was used before, and a real model would have overwritten it: continue with the "
                "state that step, select, extend or rewind returned"
            )
        self.is_used = True


@dataclass(frozen=True)
class TableModel(Abilities):
    """A model whose next-token probabilities are a function of the whole row.

    >>> coin = TableModel(lambda row: [0.5, 0.5])
    """

    table: Callable[[tuple[int, ...]], Sequence[float]]
    """All tokens so far → the probability of each next token."""
    context: int | None = None
    tokenizer: TokenizerLike | None = None

    @cached_property
    def vocab_size(self) -> int:
        return len(self.table((0,)))

    def start(self, prompts: Sequence[Sequence[int]]) -> tuple[Step, TableState]:
        rows = tuple(tuple(prompt) for prompt in prompts)
        if not rows or not all(rows):
            raise ValueError(f"the prompts are {list(rows)}: give at least one, each of at least one token")
        for token in (token for row in rows for token in row):
            if not isinstance(token, int) or isinstance(token, bool):
                raise TypeError(f"a prompt contains {token!r}: token ids are whole numbers")
        self._check(rows)
        return self._predict(TableState(rows))

    def step(self, state: TableState, tokens_N: Tensor) -> tuple[Step, TableState]:
        return self.extend(state, _check_ids("tokens", tokens_N, 1)[:, None])

    @property
    def rewindable(self) -> Self:
        return self

    def extend(self, state: TableState, tokens_NT: Tensor) -> tuple[Step, TableState]:
        count, length = _check_ids("tokens", tokens_NT, 2).shape
        if count != len(state.rows) or not length:
            raise ValueError(
                f"tokens have shape {(count, length)}: give at least one for each of {len(state.rows)} rows"
            )
        return self.extend_rows(state, torch.arange(count), tokens_NT)

    def rewind(self, state: TableState, tokens: int) -> TableState:
        count = len(state.rows)
        return self.rewind_rows(state, torch.arange(count), torch.tensor([tokens] * count))

    @property
    def joining(self) -> Self:
        return self

    def join(self, states: Sequence[TableState]) -> TableState:
        for state in states:
            state.use()
        rows = tuple(row for state in states for row in state.rows)
        return TableState(rows, tuple(new for state in states for new in state.new))

    def extend_rows(self, state: TableState, rows_M: Tensor, tokens_MT: Tensor) -> tuple[Step, TableState]:
        added = self._texts_of_rows(rows_M, _check_ids("tokens", tokens_MT, 2).tolist())
        step, grown = self._append(state, added, every_token=True)
        new = tuple(new + len(added.get(n, ())) for n, new in enumerate(state.new))
        return step, TableState(grown, new)

    def rewind_rows(self, state: TableState, rows_M: Tensor, tokens_M: Tensor) -> TableState:
        fewer = dict(zip(rows_M.tolist(), tokens_M.tolist(), strict=True))
        for row, tokens in fewer.items():
            if not 0 <= tokens <= state.new[row]:
                raise ValueError(
                    f"cannot remove {tokens} tokens of rows that have {state.new[row]} after their prompt: "
                    "remove what was added, and nothing of a prompt"
                )
        state.use()
        rows = tuple(row[: len(row) - fewer.get(n, 0)] for n, row in enumerate(state.rows))
        return TableState(rows, tuple(new - fewer.get(n, 0) for n, new in enumerate(state.new)))

    @property
    def forking(self) -> Self:
        return self

    def fork_rows(self, state: TableState, rows_K: Tensor, lengths_K: Tensor) -> TableState:
        forks = []
        for row, length in zip(_check_ids("rows", rows_K, 1).tolist(), lengths_K.tolist(), strict=True):
            if not 0 <= row < len(state.rows) or not 0 <= length <= len(state.rows[row]):
                raise ValueError(
                    f"cannot copy {length} tokens of row {row} of rows with {list(map(len, state.rows))} "
                    "tokens: choose an existing row, and no more than it has"
                )
            forks.append(state.rows[row][:length])
        state.use()
        return TableState((*state.rows, *forks), (*state.new, *(0 for _ in forks)))

    def read_rows(
        self, state: TableState, rows_M: Tensor, texts: Sequence[Sequence[int]]
    ) -> tuple[Step, TableState]:
        step, grown = self._append(state, self._texts_of_rows(rows_M, texts), every_token=False)
        return step, TableState(grown, state.new)

    def bytes_held(self, state: TableState, rows_M: Tensor) -> int:
        """Count one byte per token of every different prefix."""
        rows = [state.rows[row] for row in rows_M.tolist()]
        return len({row[: t + 1] for row in rows for t in range(len(row))})

    def compact(self, state: TableState) -> TableState:
        state.use()
        return TableState(state.rows, state.new)

    def _texts_of_rows(self, rows_M: Tensor, texts: Sequence[Sequence[int]]) -> dict[int, tuple[int, ...]]:
        rows = _check_ids("rows", rows_M, 1).tolist()
        if rows != sorted(set(rows)) or len(rows) != len(texts) or not all(texts):
            raise ValueError(
                f"cannot append {list(texts)} to rows {rows}: name each row once, in order, each with at "
                "least one token"
            )
        return {row: tuple(text) for row, text in zip(rows, texts, strict=True)}

    def _append(
        self, state: TableState, added: Mapping[int, tuple[int, ...]], *, every_token: bool
    ) -> tuple[Step, tuple[tuple[int, ...], ...]]:
        """The predictions after every new token or after the last one of each row, and all rows."""
        grown = tuple((*row, *added.get(n, ())) for n, row in enumerate(state.rows))
        self._check(grown)
        read = tuple(
            grown[row][: len(grown[row]) - later]
            for row, text in added.items()
            for later in reversed(range(len(text) if every_token else 1))
        )
        step, _ = self._predict(TableState(read))
        state.use()  # only now: if it fails, the state does not change
        return step, grown

    def _check(self, rows: tuple[tuple[int, ...], ...]) -> None:
        size, longest = self.vocab_size, max(map(len, rows))
        outside = sorted({token for row in rows for token in row if not 0 <= token < size})
        if outside:
            raise ValueError(f"the tokens {outside} are outside the vocabulary 0…{size - 1} of this model")
        if self.context is not None and longest > self.context:
            raise ValueError(f"a row has {longest} tokens, but the context of this model is {self.context}")

    # Real models return read-only tensors.
    @torch.inference_mode()
    def _predict(self, state: TableState) -> tuple[Step, TableState]:
        p = [list(self.table(row)) for row in state.rows]
        sizes = {len(p_V) for p_V in p}
        if sizes != {self.vocab_size}:
            raise ValueError(
                f"the table returned {sorted(sizes)} probabilities, but {self.vocab_size} for the row (0,): "
                "return one for each token, for any row"
            )
        return Step(torch.tensor(p, dtype=torch.float32).log()), state


def _check_ids(name: str, values: Tensor, dimensions: int) -> Tensor:
    if not isinstance(values, Tensor) or values.dtype not in (torch.long, torch.int):
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise TypeError(f"{name} are {kind}, but must be a tensor of whole numbers, torch.long")
    if values.dim() != dimensions:
        raise ValueError(
            f"{name} have the shape {tuple(values.shape)}, but must have {dimensions} dimensions"
        )
    return values


def bigram(rows: Sequence[Sequence[float]], tokenizer: TokenizerLike | None = None) -> TableModel:
    """A table model that depends on the last token only: rows[i][j] = p(j | i)."""
    return TableModel(lambda row: rows[row[-1]], tokenizer=tokenizer)


def trigram(table: Callable[[int, int], Sequence[float]]) -> TableModel:
    """A table model that depends on the last two tokens (the first one counts twice)."""
    return TableModel(lambda row: table(row[-2] if len(row) > 1 else row[-1], row[-1]))


def random_table(vocab_size: int, seed: int, order: int = 2, spread: float = 2.0) -> TableModel:
    """A fixed random model whose next token depends on the last `order` tokens."""

    def table(row: tuple[int, ...]) -> Sequence[float]:
        key = hash((seed, *row[-order:])) & 0x7FFFFFFF
        logits = spread * torch.randn(vocab_size, generator=torch.Generator().manual_seed(key))
        p: list[float] = logits.softmax(-1).tolist()
        return p

    return TableModel(table)
