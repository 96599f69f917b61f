"""Split a corpus into blocks of lines without holding more than one line in memory.

    part-0.jsonl  ├─ block 0 ─┼─ block 1 ─┼─ 2 ─┤      part-1.parquet  ├─ block 3 ─┼─ …

JSON lines are located by byte offset, Parquet rows by row group and index. A Parquet row is read as a line of
JSON without its null cells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unspool.lazy import import_optional

PARQUET = ".parquet"
SUFFIXES = (".jsonl", ".ndjson", PARQUET)
_LINE_BREAK = re.compile(r"\r\n|\n|\r")
_BOM = "\ufeff"


@dataclass(frozen=True)
class Block:
    """Consecutive lines of one file."""

    number: int
    """Index of the block in the corpus."""
    path: str
    begin: int
    """The first byte, or the first row of the row group."""
    end: int
    """The byte, or the row, after the last."""
    line: int
    """Number of the first line or Parquet row, from 1, for messages."""
    rows: int
    """Number of non-blank lines."""
    group: int = 0
    """The Parquet row group."""
    first_samples: tuple[int, ...] = ()
    """For sampling, the first sample number of each line in the corpus (`decode.rng`)."""


def corpus_files(path: Path) -> list[Path]:
    """The files of a corpus in order: one file, or all readable files of a folder."""
    if not path.is_dir():
        path.open("rb").close()  # fails early for unreadable files
        if path.suffix.lower() not in SUFFIXES:
            known = ", ".join(SUFFIXES)
            raise ValueError(f"{path}: expected a file with suffix {known}, or a folder of such files")
        return [path]
    files = sorted(
        file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.name[0] not in "._"
    )
    if not files:
        raise ValueError(f"{path}: the folder has no file with suffix {', '.join(SUFFIXES)}")
    return files


def corpus_blocks(files: Sequence[Path], rows: int) -> Iterator[Block]:
    """Blocks of at most `rows` non-blank lines, in order; a block never spans two files."""
    number = 0
    for path in files:
        split = _parquet_blocks if path.suffix.lower() == PARQUET else _line_blocks
        for begin, end, line, count, group in split(path, rows):
            yield Block(number, str(path.absolute()), begin, end, line, count, group)
            number += 1


def block_lines(block: Block, columns: Sequence[str]) -> list[tuple[str, str]]:
    """(location, line) of each non-blank line of a block; `columns` selects Parquet columns."""
    path = Path(block.path)
    if path.suffix.lower() == PARQUET:
        table = _row_group(block.path, block.group, tuple(columns)).slice(
            block.begin, block.end - block.begin
        )
        return [(f"{path}: row {block.line + at}", _json(row)) for at, row in enumerate(table.to_pylist())]
    with path.open("rb") as file:
        file.seek(block.begin)
        text = _decode(file.read(block.end - block.begin), path, first=block.begin == 0)
    lines = enumerate(_LINE_BREAK.split(text), start=block.line)
    return [(f"{path}:{number}", line) for number, line in lines if line.strip()]


BlockRange = tuple[int, int, int, int, int]
"""begin, end, line, rows, group of a Block."""


def _line_blocks(path: Path, rows: int) -> Iterator[BlockRange]:
    begin, line, count = 0, 1, 0
    at, seen = 0, 0
    with path.open("rb") as file:
        for raw in file:
            lines = _LINE_BREAK.split(_decode(raw, path, first=at == 0))
            at += len(raw)
            seen += len(lines) - (1 if raw.endswith(b"\n") else 0)
            count += sum(bool(text.strip()) for text in lines)
            if count >= rows:
                yield begin, at, line, count, 0
                begin, line, count = at, seen + 1, 0
    if count:
        yield begin, at, line, count, 0


def _decode(raw: bytes, path: Path, *, first: bool) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
    return text.removeprefix(_BOM) if first else text


def _parquet_blocks(path: Path, rows: int) -> Iterator[BlockRange]:
    metadata = _parquet(str(path)).metadata
    line = 1
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).num_rows
        for begin in range(0, size, rows):
            end = min(begin + rows, size)
            yield begin, end, line, end - begin, group
            line += end - begin


def _parquet(path: str) -> Any:
    parquet = import_optional("pyarrow.parquet", "Parquet", "pyarrow", "ray")
    try:
        return parquet.ParquetFile(path)
    except ValueError as error:  # errors of pyarrow are ValueErrors
        raise ValueError(f"{path}: not Parquet: {error}") from None


@lru_cache(maxsize=1)  # consecutive blocks share a row group
def _row_group(path: str, group: int, columns: tuple[str, ...]) -> Any:
    file = _parquet(path)
    present = [name for name in columns if name in file.schema_arrow.names]
    return file.read_row_group(group, columns=present)


def _json(row: dict[str, Any]) -> str:
    return json.dumps(
        {key: cell for key, cell in row.items() if cell is not None}, ensure_ascii=False, default=str
    )
