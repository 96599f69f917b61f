"""Read a tokenizer.json that may come from anyone.

A file is tried in another process before it is read here (`tokenizer_probe`); the user's cache folder
remembers the hashes of files that passed. If the library fails afterwards, with a text of the user's, that is
a ValueError, too: its panics are no Exception in Python, and would end the program.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer

from unspool.errors import message_line
from unspool.io import cache_folder, private_folder
from unspool.tokenization.chat_template import HelperProcess

PROBE_SECONDS = 30.0
"""For a file to be tried; one of 17 MB takes a second or two."""
MAX_BYTES = 1 << 28
MAX_REMEMBERED = 1000
"""How many files the cache folder remembers."""

PROBE = HelperProcess(Path(__file__).with_name("tokenizer_probe.py"))


class library_errors:  # noqa: N801
    """Turn errors and panics of the tokenizers library into ValueErrors that begin with `what`.

    A class, because a generator costs more than decoding one token does.
    """

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is Exception or (kind is not None and kind.__name__ == "PanicException"):
            raise ValueError(
                f"{self.what}: the tokenizers library failed: {message_line(str(error), 200)}"
            ) from None


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json; ValueError says why a file is not read."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{path} has {size >> 20} MiB, and a tokenizer.json may have {MAX_BYTES >> 20}")
    data = path.read_bytes()
    _probe(path, data)
    with library_errors(str(path)):
        try:
            found = Tokenizer.from_buffer(data)
        except Exception as error:  # tokenizers raises nothing more precise
            raise ValueError(
                f"{path} is no tokenizer that the installed tokenizers reads: {error}"
            ) from error
        found.no_truncation()
        found.no_padding()
        return found


def _probe(path: Path, data: bytes) -> None:
    digest = hashlib.sha256(data).hexdigest()
    passed = _marker_file(digest)
    if passed is not None and passed.exists():
        return
    try:
        answer = PROBE.ask(PROBE_SECONDS, path=str(path.absolute()))
    except TimeoutError:
        raise ValueError(
            f"{path} is not read: to encode some short texts took over {PROBE_SECONDS:g} s"
        ) from None
    if "error" in answer:
        raise ValueError(f"{path} is no tokenizer that can be used: {message_line(answer['error'], 300)}")
    if answer["sha256"] != digest:
        raise ValueError(f"{path} was changed while it was read: load it again")
    if passed is not None:
        with suppress(OSError):
            _evict_oldest(passed.parent)
            passed.touch()


def _marker_file(digest: str) -> Path | None:
    """The file that says that a tokenizer was tried, by this version of the library; None without a cache."""
    try:
        folder = private_folder(cache_folder() / "tokenizers")
    except OSError:
        return None
    return folder / f"{tokenizers.__version__}-{digest}"


def _evict_oldest(folder: Path) -> None:
    kept = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in kept[: -MAX_REMEMBERED + 1]:
        path.unlink(missing_ok=True)
