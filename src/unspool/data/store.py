"""Token ids on the disk: written once, row by row, then only mapped into memory.

    tokens   uint16 or uint32, all rows end to end
    offsets  int64, where each row begins, and where the last one ends

A folder of columns appears whole or not at all.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.data.ragged import Ragged
from unspool.files.atomic import beside, put

_BUFFERED = 1 << 20
_UNSIGNED = {2: "H", 4: "I"}
"""The array module's codes, by the bytes of a number."""


class Damaged(ValueError):  # noqa: N818 — named for what happened
    """What was written once is not as it was: it can only be made again."""


class Writer:
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
            return _mapped(*self._paths)
        dtype = np.uint16 if self._values.itemsize == 2 else np.uint32
        return Ragged(np.frombuffer(self._values, dtype), np.frombuffer(self._offsets, np.int64))

    def _flush(self, paths: tuple[Path, Path]) -> None:
        for path, numbers in zip(paths, (self._values, self._offsets), strict=True):
            with path.open("ab") as file:
                numbers.tofile(file)
            del numbers[:]


def read_column(folder: Path, name: str, below: int) -> Ragged:
    """What a Writer wrote, mapped: a page is read when it is needed."""
    return _mapped(*_paths(folder, name, below))


@contextmanager
def appearing(folder: Path) -> Iterator[Path]:
    """A new folder to write to: it becomes `folder` at the end of the block, or vanishes if the block fails.

    Where another process was quicker, its folder stays: the same key means the same content.
    """
    try:
        with beside(folder) as fresh:
            fresh.mkdir()
            yield fresh
            with suppress(FileExistsError):
                put(fresh, folder)
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


def _mapped(values: Path, offsets: Path) -> Ragged:
    dtype = np.uint16 if values.suffix == ".uint16" else np.uint32
    column = Ragged(_map(values, dtype), _map(offsets, np.int64))
    ends = column.offsets
    if not len(ends) or ends[0] != 0 or ends[-1] != len(column.values) or (ends[1:] < ends[:-1]).any():
        raise Damaged(f"{offsets} and {values.name} do not belong together")
    return column


def _map(path: Path, dtype: type[np.generic]) -> npt.NDArray[Any]:
    if not path.is_file():
        raise Damaged(f"{path} is missing")
    size, each = path.stat().st_size, np.dtype(dtype).itemsize
    if size % each:
        raise Damaged(f"{path} has {size} bytes, which is no multiple of {each}")
    if size == 0:  # nothing can be mapped of an empty file
        return np.empty(0, dtype)
    # A plain array of the same memory: memmap's own indexing is slow.
    return np.asarray(np.memmap(path, dtype, mode="r"))
