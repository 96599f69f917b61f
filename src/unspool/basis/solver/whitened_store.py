"""Keep a whitened W on disk: one safetensors file, named by what it was made from.

The name is a hash of W's rows, its type and the rank, so that a file can only be found by the W that it
belongs to. The file holds a checksum of its numbers and of its name; one that does not match is made anew. A
folder that other users may write to is not used, because wrong numbers would give wrong proofs. The file is
written beside its place and moved there, so that a reader never sees half of it; a file
that cannot be read is made anew, and where none can be written (a full disk, a read-only folder) there is
none, as the logger `unspool.basis.solver.whitened_store` says at level INFO. The folder holds 4 GB at most:
the files that were not used for longest go first.
"""

from __future__ import annotations

import logging
import os
from hashlib import blake2b
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from unspool.basis.arrays import as_numpy
from unspool.basis.solver.float64_rows import Float64Rows
from unspool.basis.solver.whitening import Whitened, whiten
from unspool.files.atomic import new_file
from unspool.files.cache import cache_folder, check_room, private_folder

FORMAT = 4
MOST_BYTES = 4_000_000_000

_log = logging.getLogger(__name__)


def users_folder() -> Path:
    """Where the user's programs keep such files; the environment variable UNSPOOL_CACHE names another one."""
    return cache_folder() / "basis"


def whitened(W: Any, rank: int | None, folder: str | os.PathLike[str] | None) -> Whitened:
    """`whiten(W, rank)`, from the folder if it is there, and kept there if it was not."""
    given: Any = rank
    if given is not None and (isinstance(given, bool) or not isinstance(given, Integral)):
        raise TypeError(f"rank is {rank!r:.80}, but must be a whole number, or None for every direction of W")
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise TypeError(f"cache is {folder!r:.80}, but must be the path of a folder, or None to keep nothing")
    if folder is None:
        return whiten(W, rank)
    path = Path(folder) / f"basis-{fingerprint(W, rank)}.safetensors"
    kept = _load(path, W)
    if kept is None:
        kept = whiten(W, rank)
        try:
            _save(path, kept)
            _tidy(path)
        except OSError as error:
            _log.info("%s could not be written, and will be made again next time: %s", path, error)
    return kept


def fingerprint(W: Any, rank: int | None) -> str:
    """A hash of W's numbers and of the rank."""
    rows = Float64Rows(W)
    rank = rows.shape[1] if rank is None else rank
    digest = blake2b(f"{FORMAT} {rows.shape} {rank} {as_numpy(rows.W[:1]).dtype}".encode(), digest_size=20)
    for start in range(0, rows.shape[0], 4096):
        digest.update(np.ascontiguousarray(as_numpy(rows.W[start : start + 4096])).data)
    return digest.hexdigest()


def _load(path: Path, W: Any) -> Whitened | None:
    try:
        private_folder(path.parent)
        with safe_open(path, "np") as file:
            kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if (file.metadata() or {}).get("checksum") != _checksum(path, kept):
                return None
        os.utime(path)
        return Whitened(
            Float64Rows(kept["weight"]) if "weight" in kept else Float64Rows(W),
            kept["X"],
            kept["basis"],
            kept["column"],
            kept["largest"],
            float(kept["row_norm"][0]),
            kept["norm"],
            made="weight" in kept,
        )
    except (OSError, SafetensorError, KeyError):
        return None


def _save(path: Path, white: Whitened) -> None:
    kept: dict[str, NDArray[Any]] = {
        "X": white.X_VK,
        "basis": np.ascontiguousarray(white.basis_MK),
        "column": white.column_M,
        "largest": white.largest_M,
        "row_norm": np.array([white.row_norm]),
        "norm": white.norm_V,
    }
    if white.made:
        kept["weight"] = np.ascontiguousarray(as_numpy(white.weight.W))
    size = sum(array.nbytes for array in kept.values())
    if size > MOST_BYTES:
        raise OSError(f"{size / 1e9:.1f} GB are more than is ever kept in {path.parent}")
    private_folder(path.parent)
    check_room(path.parent, size)
    with new_file(path) as fresh:
        save_file(kept, fresh, {"checksum": _checksum(path, kept)})


def _checksum(path: Path, kept: dict[str, NDArray[Any]]) -> str:
    """A hash of the file's name and of its arrays."""
    digest = blake2b(path.name.encode(), digest_size=20)
    for name, array in sorted(kept.items()):
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _tidy(newest: Path) -> None:
    """Remove what was not used for longest, until the folder is small enough."""
    files = sorted(newest.parent.glob("basis-*.safetensors"), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in files)
    for path in files:
        if total <= MOST_BYTES or path == newest:
            return
        total -= path.stat().st_size
        path.unlink(missing_ok=True)
