"""Continuous batching and prefix caching with torch: the rows of many requests in left-padded batches.

A row is a view of a padded batch: columns pad … pad + length of its KV cache.

    fork      another view of the same columns; rewinding only shortens a view
    extend    gather the rows into one batch and append T columns; nothing is copied if they are all rows of
              one batch already, as they usually are between two steps

Padding and batch size change the order of summation, so a row's results equal those of the row alone only up
to rounding.
Yu et al. 2022, §4.1 (papers.bib: yu2022orca). Shapes: N rows, K heads, S columns, I width of a head.

The state of a model has `pads`, `length` (columns), `keys_values` (of all layers, (N, K, S, I) each),
`rebuild` (a new state from gathered rows) and `truncate`, which also repairs a state after a failed call that
extended only some of its layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unspool.interfaces import Step


@dataclass(eq=False)
class PaddedBatch:
    """A state of a model, and its number of rows."""

    state: Any
    size: int


@dataclass(frozen=True, slots=True)
class Row:
    """Columns pad … pad + length of a row of a batch."""

    batch: PaddedBatch
    index: int
    pad: int
    length: int

    @property
    def end(self) -> int:
        return self.pad + self.length


EMPTY_ROW = Row(PaddedBatch(None, 1), 0, 0, 0)


@dataclass(frozen=True, slots=True)
class TorchRows:
    """Rows of any lengths."""

    rows: tuple[Row, ...]

    def select(self, rows_M: Tensor) -> TorchRows:
        return TorchRows(tuple(self.rows[row] for row in rows_M.tolist()))


class TorchBatching:
    """`interfaces.Joining` and `interfaces.Forking` of a torch model."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def join(self, states: Sequence[Any]) -> TorchRows:
        return TorchRows(tuple(row for state in states for row in _rows_of(state)))

    @torch.inference_mode()
    def extend_rows(self, state: Any, rows_M: Tensor, tokens_MT: Tensor) -> tuple[Step, TorchRows]:
        rows = _rows_of(state)
        return self._read(rows, rows_M.tolist(), tokens_MT, self._model.extend), TorchRows(tuple(rows))

    def rewind_rows(self, state: Any, rows_M: Tensor, tokens_M: Tensor) -> TorchRows:
        rows = _rows_of(state)
        for place, tokens in zip(rows_M.tolist(), tokens_M.tolist(), strict=True):
            rows[place] = replace(rows[place], length=rows[place].length - tokens)
        return TorchRows(tuple(rows))

    def fork_rows(self, state: Any, rows_K: Tensor, lengths_K: Tensor) -> TorchRows:
        rows = _rows_of(state)
        for place, length in zip(rows_K.tolist(), lengths_K.tolist(), strict=True):
            rows.append(replace(rows[place], length=length) if length else EMPTY_ROW)
        return TorchRows(tuple(rows))

    @torch.inference_mode()
    def read_rows(self, state: Any, rows_M: Tensor, texts: Sequence[Sequence[int]]) -> tuple[Step, TorchRows]:
        """One call for all empty rows, and one for each length of the other texts."""
        rows, steps, order = _rows_of(state), list[Step](), list[int]()
        pairs = list(zip(rows_M.tolist(), texts, strict=True))
        widths = [len(text) if rows[place].length else 0 for place, text in pairs]
        for width in sorted(set(widths)):
            members = [m for m, own in enumerate(widths) if own == width]
            places, own_texts = zip(*(pairs[m] for m in members), strict=True)
            if width:
                steps.append(self._read(rows, places, torch.tensor(own_texts), self._model.append))
            else:
                step, begun = self._model.start(own_texts)
                steps.append(step)
                for place, row in zip(places, _rows_of(begun), strict=True):
                    rows[place] = row
            order += members
        back_M = torch.tensor(order, device=self._model.device).argsort()
        return Step.merge(steps, torch.cat).select(back_M), TorchRows(tuple(rows))

    def bytes_held(self, state: Any, rows_M: Tensor) -> int:
        rows = _rows_of(state)
        return sum(
            row.length * sum(part[0, :, 0].nbytes for part in row.batch.state.keys_values())
            for row in _longest_views(rows[place] for place in rows_M.tolist())
            if row.length
        )

    def compact(self, state: Any) -> TorchRows:
        return TorchRows(tuple(_without_unused(_rows_of(state))))

    def _read(
        self, rows: list[Row], places: Sequence[int], tokens_MT: Tensor, read: Callable[..., tuple[Step, Any]]
    ) -> Step:
        """Append tokens to the rows at these places, and replace the rows."""
        own = [rows[place] for place in places]
        is_whole = _is_whole_batch(own, rows)
        own = own if is_whole else _gather(own)
        batch = own[0].batch
        step, batch.state = read(batch.state, tokens_MT.to(self._model.device))
        for place, row in zip(places, own, strict=True):
            rows[place] = replace(row, length=row.length + tokens_MT.shape[1])
        if not is_whole:
            rows[:] = _without_unused(rows)
        return step


def _rows_of(state: Any) -> list[Row]:
    if isinstance(state, TorchRows):
        return list(state.rows)
    pads = state.pads
    batch = PaddedBatch(state, len(pads))
    return [Row(batch, index, pad, state.length - pad) for index, pad in enumerate(pads)]


def _is_whole_batch(own: Sequence[Row], rows: Sequence[Row]) -> bool:
    """True if these are all rows of a batch, in order, and end in its last column.

    Before, columns after the ends of all views are dropped: removed tokens, and those of a call that failed.
    """
    batch = own[0].batch
    if [row.index if row.batch is batch else -1 for row in own] != list(range(batch.size)):
        return False
    end = max(row.end for row in rows if row.batch is batch)
    batch.state = batch.state.truncate(end)
    return all(row.end == end for row in own)


@torch.inference_mode()
def _gather(rows: Sequence[Row]) -> list[Row]:
    """Copy rows into a new batch."""
    columns = max(row.length for row in rows)

    def gathered() -> Iterator[Tensor]:
        for parts in zip(*(row.batch.state.keys_values() for row in rows), strict=True):
            _, K, _, I = parts[0].shape  # noqa: E741
            whole_NKSI = parts[0].new_zeros(len(rows), K, columns, I)  # padding is finite: 0 · NaN is NaN
            for row, part_NKSI, copy_KSI in zip(rows, parts, whole_NKSI, strict=True):
                copy_KSI[:, columns - row.length :] = part_NKSI[row.index, :, row.pad : row.end]
            yield whole_NKSI

    return _rows_of(rows[0].batch.state.rebuild(gathered(), [columns - row.length for row in rows]))


def _longest_views(rows: Iterable[Row]) -> list[Row]:
    """The longest view of each row of a batch."""
    longest: dict[tuple[PaddedBatch, int], Row] = {}
    for row in sorted(rows, key=lambda row: row.length):
        longest[row.batch, row.index] = row
    return list(longest.values())


def _without_unused(rows: Sequence[Row]) -> list[Row]:
    """Copy the rows of every batch from which others were removed, so that it can be freed."""
    longest = _longest_views(rows)
    used = Counter(row.batch for row in longest)
    copies = {
        (row.batch, row.index): _gather([row])[0] for row in longest if used[row.batch] < row.batch.size
    }
    return [replace(copies.get((row.batch, row.index), row), length=row.length) for row in rows]
