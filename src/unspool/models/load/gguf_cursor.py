"""Values of a GGUF file, read one after the other from its memory map, and never past its end.

Every length is checked against what is left of the file before anything is allocated from it, so that a
cut or hostile file ends in a ValueError that names the file, the offset and what was expected there.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from unspool.printable import one_line

# GGUF's value types by number; a bool is one byte, strings (8) and arrays (9) have their own readers.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEEPEST_ARRAY = 4


class GGUFCursor:
    """Reads little-endian values from the map, and never past its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.at, self.end = path, data, 0, len(data)

    def fail(self, expected: str, offset: int | None = None) -> NoReturn:
        """Refuse the file: what was expected at this byte, or at `offset`."""
        at = self.at if offset is None else offset
        place = f"{self.path}: at byte {at} of {self.end}"
        raise ValueError(f"{place}: expected {one_line(expected)}; the file is cut or damaged")

    def need(self, count: int, each: int, what: str) -> int:
        """The bytes that `count` things of at least `each` bytes take, if the file still has as many."""
        if count * each > self.end - self.at:
            self.fail(f"{what} ({count * each} bytes or more), found {self.end - self.at} bytes")
        return count * each

    def scalar(self, code: str, what: str) -> Any:
        """One number of that `struct` code."""
        size = self.need(1, struct.calcsize("<" + code), what)
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += size
        return value

    def string(self, what: str) -> str:
        """Text behind its length."""
        length = self.scalar("Q", f"the length of {what}")
        return self.text(length, what)

    def text(self, length: int, what: str) -> str:
        """Text of so many bytes."""
        self.need(length, 1, what)
        raw = self.data[self.at : self.at + length]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            self.fail(f"{what} in UTF-8, found byte {raw[error.start]:#04x}", self.at + error.start)
        self.at += length
        return text

    def strings(self, count: int, what: str) -> list[str]:
        """Many strings at once: a vocabulary has a hundred thousand, so the loop is kept lean."""
        self.need(count, 8, what)
        data, end, at, length_at = self.data, self.end, self.at, struct.Struct("<Q").unpack_from
        texts = []
        try:
            for _ in range(count):
                stop = at + 8 + length_at(data, at)[0]
                if stop > end:
                    break
                texts.append(data[at + 8 : stop].decode())
                at = stop
        except (struct.error, UnicodeDecodeError):
            pass
        self.at = at
        if len(texts) < count:
            # Read the offender once more, slowly, for its message.
            self.string(f"text {len(texts)} of {count} in {what}")
        return texts

    def array(self, what: str, depth: int) -> list[Any]:
        """A list, which may hold lists."""
        kind = self.scalar("I", f"the type of {what}'s members")
        count = self.scalar("Q", f"the number of {what}'s members")
        if kind == _STRING:
            return self.strings(count, what)
        if kind == _ARRAY:
            if depth == _DEEPEST_ARRAY:
                self.fail(f"arrays no more than {_DEEPEST_ARRAY} deep in {what}")
            self.need(count, 4 + 8, what)
            return [self.array(what, depth + 1) for _ in range(count)]
        code = self.code(kind, what)
        size = self.need(count, struct.calcsize("<" + code), what)
        values: list[Any] = np.frombuffer(
            self.data, np.dtype(code).newbyteorder("<"), count, self.at
        ).tolist()
        self.at += size
        return values

    def code(self, kind: int, what: str) -> str:
        """The `struct` code of GGUF's value type of that number."""
        if kind not in _SCALARS:
            self.fail(f"a value type from 0 to 12 for {what}, found {kind}", self.at)
        return _SCALARS[kind]

    def value(self, key: str) -> Any:
        """A value behind its type."""
        kind = self.scalar("I", f"the type of {key}")
        if kind == _STRING:
            return self.string(key)
        if kind == _ARRAY:
            return self.array(key, 1)
        return self.scalar(self.code(kind, key), key)
