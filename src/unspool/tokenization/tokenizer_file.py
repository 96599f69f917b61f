"""Read a tokenizer.json of unknown origin safely.

A new file is first tested in a helper process (`tokenizer_probe`); the user's cache folder stores the hashes
of files that passed. Later failures of the library become ValueErrors: its panics are not Exceptions in
Python and would end the program.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer

from unspool.errors import message_line
from unspool.io import cache_folder, private_folder
from unspool.tokenization.helper_process import HelperProcess

PROBE_SECONDS = 30.0
"""Time limit of the test; a file of 17 MB takes one to two seconds."""
MAX_BYTES = 1 << 28

PROBE_SCRIPT = Path(__file__).with_name("tokenizer_probe.py")
PROBE = HelperProcess(PROBE_SCRIPT)


class library_errors:  # noqa: N801
    """Turn errors and panics of the tokenizers library into ValueErrors that start with `what`.

    A class, because a generator costs more than decoding one token.
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
    """The tokenizer of a tokenizer.json; ValueError if the file is unsafe or invalid."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{path} has {size >> 20} MiB; the limit for a tokenizer.json is {MAX_BYTES >> 20}")
    data = path.read_bytes()
    _probe(path, data)
    with library_errors(str(path)):
        try:
            tokenizer = Tokenizer.from_buffer(data)
        except Exception as error:  # tokenizers raises nothing more precise
            raise ValueError(f"{path}: the installed tokenizers library cannot read it: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


def _probe(path: Path, data: bytes) -> None:
    digest = hashlib.sha256(data).hexdigest()
    marker = _marker_file(digest)
    if marker is not None and marker.exists():
        return
    try:
        reply = PROBE.request(PROBE_SECONDS, path=str(path.absolute()))
    except TimeoutError:
        raise ValueError(f"{path}: encoding short test texts took over {PROBE_SECONDS:g} s") from None
    if "error" in reply:
        raise ValueError(f"{path} is not a usable tokenizer: {message_line(reply['error'], 300)}")
    if reply["sha256"] != digest:
        raise ValueError(f"{path} changed while it was read: load it again")
    if marker is not None:
        with suppress(OSError):
            marker.touch()


def _marker_file(digest: str) -> Path | None:
    """The file that marks a tokenizer as tested; None without a cache folder.

    Another version of the library or of the test needs another marker.
    """
    try:
        folder = private_folder(cache_folder() / "tokenizers")
        test = hashlib.sha256(PROBE_SCRIPT.read_bytes()).hexdigest()[:16]
    except OSError:
        return None
    return folder / f"{tokenizers.__version__}-{test}-{digest}"
