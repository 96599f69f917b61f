"""Encoded rows: columns of token ids in memory, or memory-mapped from a cache folder, and its hash keys.

tokens   uint16 or uint32, all rows concatenated
offsets  int64, the start of each row and the end of the last one
"""

from __future__ import annotations

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
from unspool.data.examples import bos_and_eos
from unspool.data.rows import END_OF_TEXT, Row, RowFormat, check_files, open_text
from unspool.io import checksum, rename_folder, temporary_sibling
from unspool.tokenization import Tokenizer

_BUFFERED = 1 << 20
_UNSIGNED = {2: "H", 4: "I"}
"""Bytes of a number → type code of the array module."""


class DamagedCacheError(ValueError):
    """A cache folder was damaged and has to be written again."""


class ColumnWriter:
    """Writes a column row by row, to memory or to two files of a folder."""

    def __init__(self, below: int, folder: Path | None = None, name: str = "") -> None:
        self._values = array(_UNSIGNED[_bytes(below)])
        self._offsets = array("q", [0])
        self._end = 0
        self._paths = None if folder is None else _paths(folder, name, below)

    def put(self, values: Sequence[int]) -> None:
        """Append to the current row."""
        self._values.extend(values)
        self._end += len(values)
        if self._paths is not None and len(self._values) >= _BUFFERED:
            self._flush(self._paths)

    def end(self) -> None:
        """End the current row."""
        self._offsets.append(self._end)

    def finish(self) -> Ragged:
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


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `folder` if the block succeeds.

    If another process was faster, its folder stays: equal names mean equal content.
    """
    with temporary_sibling(folder) as fresh:
        fresh.mkdir()
        yield fresh
        with suppress(FileExistsError):
            rename_folder(fresh, folder)


def _bytes(below: int) -> int:
    return 2 if below <= 1 << 16 else 4


def _paths(folder: Path, name: str, below: int) -> tuple[Path, Path]:
    return folder / f"{name}.uint{8 * _bytes(below)}", folder / f"{name}.offsets"


def _map_column(values: Path, offsets: Path) -> Ragged:
    dtype = np.uint16 if values.suffix == ".uint16" else np.uint32
    return Ragged(_map_file(values, dtype), _map_file(offsets, np.int64))


def _map_file(path: Path, dtype: type[np.generic]) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    # As a plain array, because indexing a memmap is slow.
    return np.asarray(np.memmap(path, dtype, mode="r"))


_FACTS = "facts.json"
_ROWS, _CHARACTERS = 1 << 12, 1 << 20


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """All rows as columns of token ids."""

    train: tuple[Ragged, ...]
    """The training rows."""
    valid: tuple[Ragged, ...]
    """The validation rows."""
    empty: int = 0
    """Number of rows left out because of an empty column."""


class NonEmptyRows:
    """Iterates over rows without an empty column (and END_OF_TEXT), and counts the others."""

    def __init__(self, rows: Iterable[Row], form: RowFormat) -> None:
        self._rows, self._joined = rows, form.joined
        self.empty = 0

    def count(self) -> int:
        """Return the number of rows, without END_OF_TEXT."""
        return sum(1 for row in self if row != END_OF_TEXT)

    def __iter__(self) -> Iterator[Row]:
        for row in self._rows:
            if self._joined or all(column.strip() for column in row):
                yield row
            else:
                self.empty += 1


def chunk_rows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows in chunks: large enough for parallel tokenization, small enough for memory."""
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
    tokenizer: Tokenizer,
    folder: Path | None = None,
) -> EncodedRows:
    """Encode every row; `held` marks the rows held out for validation."""
    if folder is None:
        return _encode_to(train, valid, held, form, tokenizer, None)
    with atomic_folder(folder) as fresh:
        found = _encode_to(train, valid, held, form, tokenizer, fresh)
        facts = {
            "empty": found.empty,
            "crc32": {file.name: checksum(file) for file in sorted(fresh.iterdir())},
        }
        (fresh / _FACTS).write_text(json.dumps(facts), encoding="utf-8")
    return read_encoded_rows(folder, form, tokenizer)


def read_encoded_rows(folder: Path, form: RowFormat, tokenizer: Tokenizer) -> EncodedRows:
    """Read the columns that `encode_rows` wrote; DamagedCacheError if they are not intact."""
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        empty, checksums = operator.index(facts["empty"]), dict(facts["crc32"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedCacheError(f"{folder / _FACTS} is missing or damaged") from error
    for name, expected in checksums.items():
        if not (folder / name).is_file():
            raise DamagedCacheError(f"{folder / name} is missing")
        if checksum(folder / name) != expected:
            raise DamagedCacheError(f"{folder / name} was changed: its checksum does not match")
    below = _value_limit(form, tokenizer)
    train, valid = (
        tuple(_map_column(*_paths(folder, f"{part}{column}", below)) for column in range(form.columns))
        for part in ("train", "valid")
    )
    return EncodedRows(train, valid, empty)


def _value_limit(form: RowFormat, tokenizer: Tokenizer) -> int:
    """Return an upper limit of all numbers in all columns."""
    sources = 0 if tokenizer.source is None else tokenizer.source.vocab_size
    return max(tokenizer.vocab_size, sources, len(form.labels) + 1)  # one more for tokens without a label


def _encode_to(
    train: Iterable[Row],
    valid: Iterable[Row] | None,
    held: npt.NDArray[np.bool_],
    form: RowFormat,
    tokenizer: Tokenizer,
    folder: Path | None,
) -> EncodedRows:
    below = _value_limit(form, tokenizer)
    parts = [
        _RowWriter(
            [ColumnWriter(below, folder, f"{part}{column}") for column in range(form.columns)],
            form,
            tokenizer,
        )
        for part in ("train", "valid")
    ]
    filled, others = NonEmptyRows(train, form), NonEmptyRows(valid or (), form)
    is_held = iter(held)
    for rows in chunk_rows(filled):
        for ids in form.encode(rows, tokenizer):
            if ids:
                parts[int(next(is_held))].add(ids)
            else:
                for part in parts:
                    part.end()
    for rows in chunk_rows(others):
        for ids in form.encode(rows, tokenizer):
            parts[1].add(ids) if ids else parts[1].end()
    return EncodedRows(parts[0].finish(), parts[1].finish(), filled.empty + others.empty)


class _RowWriter:
    """Writes rows to columns; joined rows become one long row per text."""

    def __init__(self, columns: list[ColumnWriter], form: RowFormat, tokenizer: Tokenizer) -> None:
        self._columns, self._form, self._text = columns, form, tokenizer
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
        """End the text of joined rows."""
        if self._form.joined and self._begun:
            self._columns[0].put([bos_and_eos(self._text)[1]])
            self._columns[0].end()
            self._begun = False

    def finish(self) -> tuple[Ragged, ...]:
        self.end()
        return tuple(column.finish() for column in self._columns)


FileHashes = Mapping[str, list[str]]
"""Setting → hashes of the content of its files, uncompressed."""

_FORMAT = 3
"""Increase it when the storage format changes."""


def hash_settings(kind: type[Any], settings: dict[str, Any]) -> str:
    return _digest([_FORMAT, kind.__name__, settings])


def hash_files(data: Any) -> FileHashes:
    """Hash the content of each file of `data`; FileNotFoundError names a missing one."""
    check_files(data.files())
    return {name: [_hash_content(Path(path)) for path in paths] for name, paths in data.files().items()}


def hash_data(data: Any, seed: int, files: FileHashes | None = None) -> str:
    """Hash the rows of `data` and the choice of held-out ones. `files` are known hashes of its files."""
    settings = {**to_dict(data), **(hash_files(data) if files is None else files)}
    return _digest([hash_settings(type(data), settings), seed if data.holds_out else None])


def hash_tokenizer(tokenizer: Tokenizer) -> str:
    """Hash a tokenizer: equal hashes mean equal ids for every string."""
    if tokenizer.source is not None:
        return combine_hashes(
            hash_tokenizer(replace(tokenizer, source=None)), hash_tokenizer(tokenizer.source)
        )
    order = ["right to left"] if tokenizer.right_to_left else []
    template = [] if tokenizer.chat_template is None else [tokenizer.chat_template]
    ends = [tokenizer.bos_id, tokenizer.add_bos, sorted(tokenizer.eos_ids)]
    names = [tokenizer.bos_token, tokenizer.eos_token]
    return _digest([tokenizer.backend.to_str(), *ends, *names, tokenizer.literal, *template, *order])


def combine_hashes(*names: str) -> str:
    return _digest(list(names))


def _hash_content(path: Path) -> str:
    with open_text(path) as (content, _):
        return hashlib.file_digest(content, "sha256").hexdigest()


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
