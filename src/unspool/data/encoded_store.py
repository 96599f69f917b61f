"""Rows → columns of token ids, once and in one pass: to memory, or to a folder that later runs find again."""

from __future__ import annotations

import errno
import hashlib
import json
import operator
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.config import to_dict
from unspool.data.batch import Ragged
from unspool.data.examples import END_OF_TEXT, Row, RowFormat, bos_and_eos
from unspool.data.reading import check_files, open_text
from unspool.io import checksum, rename_folder, temporary_sibling
from unspool.tokenization import Tokenizer

# Token ids on the disk: written once, row by row, then only mapped into memory.
#
#     tokens   uint16 or uint32, all rows end to end
#     offsets  int64, where each row begins, and where the last one ends
#
# A folder of columns appears whole or not at all.


_BUFFERED = 1 << 20
_UNSIGNED = {2: "H", 4: "I"}
"""The array module's codes, by the bytes of a number."""


class DamagedCacheError(ValueError):
    """What was written once is not as it was: it can only be made again."""


class ColumnWriter:
    """A column that grows row by row: in memory, or in two files of a folder."""

    def __init__(self, below: int, folder: Path | None = None, name: str = "") -> None:
        self._values = array(_UNSIGNED[_bytes(below)])
        self._offsets = array("q", [0])
        self._end = 0
        self._paths = None if folder is None else _paths(folder, name, below)

    def put(self, values: Sequence[int]) -> None:
        """Add to the row that is being written."""
        self._values.extend(values)
        self._end += len(values)
        if self._paths is not None and len(self._values) >= _BUFFERED:
            self._flush(self._paths)

    def end(self) -> None:
        """End the row."""
        self._offsets.append(self._end)

    def finish(self) -> Ragged:
        """The column."""
        if self._paths is not None:
            self._flush(self._paths)
            return _map_column(*self._paths)
        dtype = np.uint16 if self._values.itemsize == 2 else np.uint32
        return Ragged(np.frombuffer(self._values, dtype), np.frombuffer(self._offsets, np.int64))

    def _flush(self, paths: tuple[Path, Path]) -> None:
        for path, numbers in zip(paths, (self._values, self._offsets), strict=True):
            with path.open("ab") as file:
                numbers.tofile(file)
            del numbers[:]


def read_column(folder: Path, name: str, below: int) -> Ragged:
    """What a Writer wrote, mapped: a page is read when it is needed."""
    return _map_column(*_paths(folder, name, below))


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A new folder to write to: it becomes `folder` at the end of the block, or vanishes if the block fails.

    Where another process was quicker, its folder stays: the same key means the same content.
    """
    try:
        with temporary_sibling(folder) as fresh:
            fresh.mkdir()
            yield fresh
            with suppress(FileExistsError):
                rename_folder(fresh, folder)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise OSError(
            errno.ENOSPC,
            f"the disk is full: {folder.name} cannot be written to {folder.parent}; free some room",
        ) from error


def _bytes(below: int) -> int:
    return 2 if below <= 1 << 16 else 4


def _paths(folder: Path, name: str, below: int) -> tuple[Path, Path]:
    return folder / f"{name}.uint{8 * _bytes(below)}", folder / f"{name}.offsets"


def _map_column(values: Path, offsets: Path) -> Ragged:
    dtype = np.uint16 if values.suffix == ".uint16" else np.uint32
    column = Ragged(_map_file(values, dtype), _map_file(offsets, np.int64))
    ends = column.offsets
    if not len(ends) or ends[0] != 0 or ends[-1] != len(column.values) or (ends[1:] < ends[:-1]).any():
        raise DamagedCacheError(f"{offsets} and {values.name} do not belong together")
    return column


def _map_file(path: Path, dtype: type[np.generic]) -> npt.NDArray[Any]:
    if not path.is_file():
        raise DamagedCacheError(f"{path} is missing")
    size, each = path.stat().st_size, np.dtype(dtype).itemsize
    if size % each:
        raise DamagedCacheError(f"{path} has {size} bytes, which is no multiple of {each}")
    if size == 0:  # nothing can be mapped of an empty file
        return np.empty(0, dtype)
    # A plain array of the same memory: memmap's own indexing is slow.
    return np.asarray(np.memmap(path, dtype, mode="r"))


_FACTS = "facts.json"
_ROWS, _CHARACTERS = 1 << 12, 1 << 20


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """All rows as columns of token ids."""

    train: tuple[Ragged, ...]
    """The rows to learn from."""
    valid: tuple[Ragged, ...]
    """The rows to validate on."""
    empty: int = 0
    """Rows left out because a column was empty."""


class NonEmptyRows:
    """The rows that have something in every column (and END), and the number of the others."""

    def __init__(self, rows: Iterable[Row], form: RowFormat) -> None:
        self._rows, self._joined = rows, form.joined
        self.empty = 0

    def count(self) -> int:
        """How many rows there are, END not counted."""
        return sum(1 for row in self if row != END_OF_TEXT)

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            if self._joined or all(column.strip() for column in row):
                yield row
            else:
                self.empty += 1


def chunk_rows(rows: Iterable[Row]) -> Iterator[list[Row]]:
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


def encode_rows(
    train: Iterable[Row],
    valid: Iterable[Row] | None,
    held: npt.NDArray[np.bool_],
    form: RowFormat,
    text: Tokenizer,
    folder: Path | None = None,
) -> EncodedRows:
    """Encode every row; those that are `held` out go to the validation."""
    if folder is None:
        return _encode_to(train, valid, held, form, text, None)
    with atomic_folder(folder) as fresh:
        found = _encode_to(train, valid, held, form, text, fresh)
        facts = {"empty": found.empty, "crc32": {it.name: checksum(it) for it in sorted(fresh.iterdir())}}
        (fresh / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
    return read_encoded_rows(folder, form, text)


def read_encoded_rows(folder: Path, form: RowFormat, text: Tokenizer) -> EncodedRows:
    """What `encoded` wrote to a folder; Damaged where it is no longer so."""
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        empty, checksums = operator.index(facts["empty"]), dict(facts["crc32"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedCacheError(f"{folder / _FACTS} is missing or not what was written") from error
    for name, said in checksums.items():
        if not (folder / name).is_file():
            raise DamagedCacheError(f"{folder / name} is missing")
        if checksum(folder / name) != said:
            raise DamagedCacheError(
                f"{folder / name} was changed after it was written (its checksum does not match)"
            )
    below = _value_limit(form, text)
    train, valid = (
        tuple(read_column(folder, f"{part}{column}", below) for column in range(form.columns))
        for part in ("train", "valid")
    )
    return EncodedRows(train, valid, empty)


def _value_limit(form: RowFormat, text: Tokenizer) -> int:
    """What all numbers of all columns are below."""
    sources = 0 if text.source is None else text.source.vocab_size
    return max(text.vocab_size, sources, len(form.labels) + 1)  # one more number: no label


def _encode_to(
    train: Iterable[Row],
    valid: Iterable[Row] | None,
    held: npt.NDArray[np.bool_],
    form: RowFormat,
    text: Tokenizer,
    folder: Path | None,
) -> EncodedRows:
    below = _value_limit(form, text)
    writers = [
        [ColumnWriter(below, folder, f"{part}{column}") for column in range(form.columns)]
        for part in ("train", "valid")
    ]
    parts = [_RowWriter(columns, form, text) for columns in writers]
    filled = NonEmptyRows(train, form)
    number = 0
    for rows in chunk_rows(filled):
        for ids in form.encode(rows, text):
            if not ids:
                for part in parts:
                    part.end()
                continue
            parts[int(held[number])].add(ids)
            number += 1
    others = NonEmptyRows(() if valid is None else valid, form)
    for rows in chunk_rows(others):
        for ids in form.encode(rows, text):
            parts[1].add(ids) if ids else parts[1].end()
    return EncodedRows(parts[0].finish(), parts[1].finish(), filled.empty + others.empty)


class _RowWriter:
    """Writes rows to columns; joined rows become one long row for each text."""

    def __init__(self, columns: list[ColumnWriter], form: RowFormat, text: Tokenizer) -> None:
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
            self._columns[0].put([bos_and_eos(self._text)[1]])
            self._columns[0].end()
            self._begun = False

    def finish(self) -> tuple[Ragged, ...]:
        self.end()
        return tuple(column.finish() for column in self._columns)


# Names for what was made from something: equal names mean equal content, whatever the files are called.


FileHashes = Mapping[str, list[str]]
"""What each file holds: packed or not, it is the same."""

_FORMAT = 3
"""Raised whenever the same rows would be stored in another way."""


def hash_settings(kind: type[Any], settings: dict[str, Any]) -> str:
    """Of settings that JSON can say."""
    return _digest([_FORMAT, kind.__name__, settings])


def hash_files(data: Any) -> FileHashes:
    """Of what each file of `data` holds, by the name of its setting; FileNotFoundError names one missing."""
    check_files(data.files())
    return {name: [_hash_content(Path(path)) for path in paths] for name, paths in data.files().items()}


def hash_data(data: Any, seed: int, files: FileHashes | None = None) -> str:
    """Of the rows that `data` gives, and of which of them are held out: files count by what they hold.

    `files` is what `of_files` says, where that has been asked already.
    """
    settings = {**to_dict(data), **(hash_files(data) if files is None else files)}
    return _digest([hash_settings(type(data), settings), seed if data.holds_out else None])


def hash_tokenizer(text: Tokenizer) -> str:
    """Of the ids that `text` gives to every string, and to every source."""
    if text.source is not None:
        return combine_hashes(hash_tokenizer(replace(text, source=None)), hash_tokenizer(text.source))
    order = ["right to left"] if text.right_to_left else []
    template = [] if text.chat_template is None else [text.chat_template]
    ends = [text.bos_id, text.add_bos, sorted(text.eos_ids)]
    return _digest([text.backend.to_str(), *ends, text.literal, *template, *order])


def combine_hashes(*names: str) -> str:
    """One name for several things together."""
    return _digest(list(names))


def _hash_content(path: Path) -> str:
    with open_text(path) as (content, _):
        return hashlib.file_digest(content, "sha256").hexdigest()


def _digest(said: Any) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]
