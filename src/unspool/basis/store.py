"""Keep a whitened W on disk: one safetensors file, named by what it was made from.

The name is a hash of W's rows, its type and the rank, so that a file can only be found by the W that it
belongs to. It is written beside its place and moved there, so that a reader never sees half of it; a file
that cannot be read is made anew.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from unspool.basis.whitening import Rows, Whitened, whiten

FORMAT = 1


def whitened(W: Any, rank: int | None, folder: str | os.PathLike[str] | None) -> Whitened:
    """`whiten(W, rank)`, from the folder if it is there, and kept there if it was not."""
    if folder is None:
        return whiten(W, rank)
    path = Path(folder) / f"basis-{fingerprint(W, rank)}.safetensors"
    kept = _load(path, W)
    if kept is None:
        kept = whiten(W, rank)
        _save(path, kept, W)
    return kept


def fingerprint(W: Any, rank: int | None) -> str:
    """A hash of W's numbers and of the rank."""
    rows = Rows(W)
    rank = rows.shape[1] if rank is None else rank
    digest = blake2b(f"{FORMAT} {rows.shape} {rank}".encode(), digest_size=20)
    for _, block in rows.blocks():
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def _load(path: Path, W: Any) -> Whitened | None:
    try:
        kept = load_file(path)
        return Whitened(
            Rows(kept["weight"]) if "weight" in kept else Rows(W),
            kept["X"],
            kept["basis"],
            kept["column"],
            float(kept["row_norm"][0]),
            kept["norm"],
        )
    except (FileNotFoundError, SafetensorError, KeyError):
        return None


def _save(path: Path, white: Whitened, W: Any) -> None:
    kept: dict[str, NDArray[Any]] = {
        "X": white.X_VK,
        "basis": np.ascontiguousarray(white.basis_MK),
        "column": white.column_M,
        "row_norm": np.array([white.row_norm]),
        "norm": white.norm_V,
    }
    if white.weight.shape[1] < Rows(W).shape[1]:
        kept["weight"] = np.ascontiguousarray(white.weight.W)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".basis-", suffix=".tmp")
    os.close(handle)
    try:
        save_file(kept, name)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
