"""Lines of UTF-8, one by one, however large the file is; what is not is named by file, line and byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from unspool.data.meter import Advance, silent

_BYTE_ORDER_MARK = "\ufeff"
MAX_LINE_BYTES = 1_000_000


def read_lines(path: str | Path, limit: int = MAX_LINE_BYTES, advance: Advance = silent) -> Iterator[str]:
    r"""The lines of a file without their ends (\n or \r\n)."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}: name a text file in UTF-8, one text a line")
    with path.open("rb") as file:
        number, before = 0, 0
        while raw := file.readline(limit + 2):
            number += 1
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) > limit:
                raise ValueError(
                    f"{path}, line {number} is longer than {limit:,} bytes: is it one text a line? If it "
                    "should be so long, raise max_line_bytes"
                )
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number} is not valid UTF-8: 0x{line[error.start]:02X} is byte "
                    f"{error.start + 1} of the line, {before + error.start + 1} of the file; convert the "
                    "file to UTF-8"
                ) from None
            yield text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text
            before += len(raw)
            advance(len(raw))
        if not before:
            raise ValueError(f"{path} is empty: there is nothing to learn from")


def check_files(files: Mapping[str, str]) -> None:
    """FileNotFoundError for a file that is not there, with the setting that names it."""
    for name, path in files.items():
        if not Path(path).is_file():
            raise FileNotFoundError(f"{name} = {path!r}: there is no such file")


def size(path: str | Path) -> int:
    """Bytes in a file; 0 where there is none, which `read_lines` complains about."""
    path = Path(path)
    return path.stat().st_size if path.is_file() else 0
