"""Rows → columns of token ids, once and in one pass: to memory, or to a folder that later runs find again."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unspool.data.ragged import Ragged
from unspool.data.row_forms import END, Row, RowForm, ends
from unspool.data.store import Damaged, Writer, appearing, read_column
from unspool.files.atomic import checksum
from unspool.text import Codec

_FACTS = "facts.json"
_ROWS, _CHARACTERS = 1 << 12, 1 << 20


@dataclass(frozen=True, eq=False)
class Encoded:
    """All rows as columns of token ids."""

    train: tuple[Ragged, ...]
    """The rows to learn from."""
    valid: tuple[Ragged, ...]
    """The rows to validate on."""
    empty: int = 0
    """Rows left out because a column was empty."""


class Filled:
    """The rows that have something in every column (and END), and the number of the others."""

    def __init__(self, rows: Iterable[Row], form: RowForm) -> None:
        self._rows, self._joined = rows, form.joined
        self.empty = 0

    def count(self) -> int:
        """How many rows there are, END not counted."""
        return sum(1 for row in self if row != END)

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            if self._joined or all(column.strip() for column in row):
                yield row
            else:
                self.empty += 1


def handfuls(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows, some at a time: enough to keep all cores busy, few enough to forget about memory."""
    some: list[Row] = []
    characters = 0
    for row in rows:
        some.append(row)
        characters += sum(map(len, row))
        if len(some) >= _ROWS or characters >= _CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


def encoded(
    train: Iterable[Row],
    valid: Iterable[Row] | None,
    held: npt.NDArray[np.bool_],
    form: RowForm,
    text: Codec,
    folder: Path | None = None,
) -> Encoded:
    """Encode every row; those that are `held` out go to the validation."""
    if folder is None:
        return _write(train, valid, held, form, text, None)
    with appearing(folder) as fresh:
        found = _write(train, valid, held, form, text, fresh)
        facts = {"empty": found.empty, "crc32": {it.name: checksum(it) for it in sorted(fresh.iterdir())}}
        (fresh / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
    return read_encoded(folder, form, text)


def read_encoded(folder: Path, form: RowForm, text: Codec) -> Encoded:
    """What `encoded` wrote to a folder; Damaged where it is no longer so."""
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        empty, checksums = operator.index(facts["empty"]), dict(facts["crc32"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Damaged(f"{folder / _FACTS} is missing or not what was written") from error
    for name, said in checksums.items():
        if not (folder / name).is_file():
            raise Damaged(f"{folder / name} is missing")
        if checksum(folder / name) != said:
            raise Damaged(f"{folder / name} was changed after it was written (its checksum does not match)")
    below = _below(form, text)
    train, valid = (
        tuple(read_column(folder, f"{part}{column}", below) for column in range(form.columns))
        for part in ("train", "valid")
    )
    return Encoded(train, valid, empty)


def _below(form: RowForm, text: Codec) -> int:
    """What all numbers of all columns are below."""
    sources = 0 if text.source is None else text.source.vocab_size
    return max(text.vocab_size, sources, len(form.labels) + 1)  # one more number: no label


def _write(
    train: Iterable[Row],
    valid: Iterable[Row] | None,
    held: npt.NDArray[np.bool_],
    form: RowForm,
    text: Codec,
    folder: Path | None,
) -> Encoded:
    below = _below(form, text)
    writers = [
        [Writer(below, folder, f"{part}{column}") for column in range(form.columns)]
        for part in ("train", "valid")
    ]
    parts = [_Part(columns, form, text) for columns in writers]
    filled = Filled(train, form)
    number = 0
    for rows in handfuls(filled):
        for ids in form.encode(rows, text):
            if not ids:
                for part in parts:
                    part.end()
                continue
            parts[int(held[number])].add(ids)
            number += 1
    others = Filled(() if valid is None else valid, form)
    for rows in handfuls(others):
        for ids in form.encode(rows, text):
            parts[1].add(ids) if ids else parts[1].end()
    return Encoded(parts[0].finish(), parts[1].finish(), filled.empty + others.empty)


class _Part:
    """Writes rows to columns; joined rows become one long row for each text."""

    def __init__(self, columns: list[Writer], form: RowForm, text: Codec) -> None:
        self._columns, self._form, self._text = columns, form, text
        self._begun = False

    def add(self, ids: Sequence[list[int]]) -> None:
        if self._form.joined and not self._begun:
            self._columns[0].put(self._text.with_bos([]))
        self._begun = True
        for column, values in zip(self._columns, ids, strict=True):
            column.put(values)
            if not self._form.joined:
                column.end()

    def end(self) -> None:
        """The text of joined rows ends here, if one has begun."""
        if self._form.joined and self._begun:
            self._columns[0].put([ends(self._text)[1]])
            self._columns[0].end()
            self._begun = False

    def finish(self) -> tuple[Ragged, ...]:
        self.end()
        return tuple(column.finish() for column in self._columns)
