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
from contextlib import contextmanager, nullcontext, suppress
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
_TYPE_CODES = {"uint16": "H", "uint32": "I"}
"""Type of the values, which is the suffix of their file → type code of the array module."""


class DamagedCacheError(ValueError):
    """A cache folder was damaged and has to be written again."""


class ColumnWriter:
    """Writes a column of numbers row by row, to memory or to two files."""

    def __init__(self, below: int, path: Path | None = None) -> None:
        self._type = "uint16" if below <= 1 << 16 else "uint32"
        self._values, self._offsets = array(_TYPE_CODES[self._type]), array("q", [0])
        self._end, self._path = 0, path

    def put(self, values: Sequence[int]) -> None:
        self._values.extend(values)
        self._end += len(values)
        if self._path is not None and len(self._values) >= _BUFFERED:
            self._flush(self._path)

    def end(self) -> None:
        self._offsets.append(self._end)

    def finish(self) -> Ragged:
        if self._path is None:
            return Ragged(np.asarray(self._values), np.asarray(self._offsets))
        self._flush(self._path)
        return map_column(self._path)

    def _flush(self, path: Path) -> None:
        for suffix, numbers in ((self._type, self._values), ("offsets", self._offsets)):
            with path.with_suffix(f".{suffix}").open("ab") as file:
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


def map_column(path: Path) -> Ragged:
    """The column in the two files of this name."""
    (values,) = path.parent.glob(f"{path.name}.uint*")
    return Ragged(_map_file(values, values.suffix[1:]), _map_file(path.with_suffix(".offsets"), "int64"))


def _map_file(path: Path, dtype: str) -> npt.NDArray[Any]:
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
    valid: tuple[Ragged, ...]
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
    """Encode every row, to files if there is a folder; `held` marks the rows held out for validation."""
    below = max(tokenizer.vocab_size, tokenizer.source_tokenizer.vocab_size)
    below = max(below, len(form.labels) + 1)  # one more for tokens without a label
    with nullcontext() if folder is None else atomic_folder(folder) as fresh:

        def column(name: str) -> ColumnWriter:
            return ColumnWriter(below, None if fresh is None else fresh / name)

        parts = [
            _RowWriter([column(f"{part}{number}") for number in range(form.columns)], form, tokenizer)
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
        found = EncodedRows(parts[0].finish(), parts[1].finish(), filled.empty + others.empty)
        if fresh is not None:
            checksums = {file.name: checksum(file) for file in sorted(fresh.iterdir())}
            facts = json.dumps({"empty": found.empty, "crc32": checksums})
            (fresh / _FACTS).write_text(facts, encoding="utf-8")
    return found if folder is None else read_encoded_rows(folder, form)


def read_encoded_rows(folder: Path, form: RowFormat) -> EncodedRows:
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
    train, valid = (
        tuple(map_column(folder / f"{part}{column}") for column in range(form.columns))
        for part in ("train", "valid")
    )
    return EncodedRows(train, valid, empty)


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
    return combine_hashes(_FORMAT, kind.__name__, settings)


def hash_files(data: Any) -> FileHashes:
    """Hash the content of each file of `data`; FileNotFoundError names a missing one."""
    check_files(data.files())
    return {name: [_hash_content(Path(path)) for path in paths] for name, paths in data.files().items()}


def hash_data(data: Any, seed: int, files: FileHashes) -> str:
    """Hash the rows of `data` and the choice of held-out ones. `files` are the hashes of its files."""
    return combine_hashes(
        hash_settings(type(data), {**to_dict(data), **files}), seed if data.holds_out else None
    )


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
    return combine_hashes(tokenizer.backend.to_str(), *ends, *names, tokenizer.literal, *template, *order)


def combine_hashes(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _hash_content(path: Path) -> str:
    with open_text(path) as (content, _):
        return hashlib.file_digest(content, "sha256").hexdigest()
