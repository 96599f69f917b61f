"""Whiten the output matrix: the same constraints in coordinates where the vocabulary is round.

    W̃ = [W·V_r, 1]      (1/V) W̃ᵀW̃ = S·QΛQᵀ·S,  S = diag√      B = S⁻¹QΛ^(−½)      X = W̃·B,   (1/V) XᵀX = I

Rank: V_r are the r leading right-singular directions of W, uncentred and unscaled. Fewer equalities leave
more distributions feasible: whatever is accepted at rank r is accepted at every higher rank. Columns that
others make up (duplicate or constant columns, fewer rows than columns) show in eigenvalues of zero; they are
left out (columns.py), which for exact dependence leaves nothing out. Squaring W̃ loses half of float64's
digits, so where columns are nearly dependent the product W̃·B is squared and whitened again.

Finlayson et al. 2024, §4 and appendix (rank reduction by a truncated singular value decomposition).
papers.bib: finlayson2024closing

Memory at V = 200,000 and d = 4,096: X in float32 takes 3.3 GB beside W itself, which is neither copied nor
converted at full rank; Q, B and eigh's workspace take 0.7 GB, blocks in float64 0.2 GB. W may stay on disk
(np.memmap) or in half precision. At rank 100 X takes 80 MB and the projected rows, float64, 160 MB.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from unspool.basis.arrays import Array, Array32, Indices, as_numpy
from unspool.basis.solver.distribution import Float64Rows, in_fair_units, made_up_by_others, scaled_alike
from unspool.io import cache_folder, check_room, new_file, private_folder

# A direction of W̃ this much shorter than the longest is rounding: sums over a vocabulary cannot settle it.
DEPENDENT = 1e-10
# Eigenvalues of (1/V)W̃ᵀW̃, relative to the largest: below the first a second whitening is due, and the
# first one takes none for less than the second.
NEARLY = 1e-8
LEAST = 1e-14
# A singular direction this much shorter than the longest is rounding.
ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Whitened:
    """W̃ in two coordinate systems: exact rows in float64 for proofs, whitened ones in float32 to search."""

    weight: Float64Rows
    """W at full rank, W·V_r in float64 below it; in other units, or without some columns, where columns.py
    says so. W̃ without its column of ones."""
    X_VK: Array32
    basis_MK: Array
    """B: coordinates λ of the search become coordinates B·λ of W̃, with the same s = X·λ = W̃·B·λ."""
    column_M: Array
    """The mean square of each column of W̃."""
    largest_M: Array
    """The largest entry of each column of W̃."""
    row_norm: float
    """The longest row of W̃."""
    norm_V: Array = field(repr=False)
    """‖xⱼ‖ of every row."""
    made: bool
    """Whether `weight` was made of W, and is not W itself."""

    @cached_property
    def m(self) -> int:
        """Columns of W̃: rank + 1."""
        return int(self.basis_MK.shape[0])

    @cached_property
    def basis_reach(self) -> float:
        """A bound of Σₘ|wₘ||Bₘₖ|, as a vector over k, for every row w of W̃."""
        by_length = self.row_norm * np.linalg.norm(self.basis_MK)
        return float(min(by_length, np.linalg.norm(self.largest_M @ np.abs(self.basis_MK))))

    def reach(self, slopes_MQ: Array) -> Array:
        """A bound of Σₘ|wₘ||λₘ| for every row w of W̃, (Q): the smaller one of two."""
        reach_Q: Array = self.row_norm * np.sqrt(np.einsum("mq,mq->q", slopes_MQ, slopes_MQ))
        np.minimum(reach_Q, self.largest_M @ np.abs(slopes_MQ), out=reach_Q)
        return reach_Q

    def rows(self, index: Indices) -> Array:
        """Rows of W̃ in float64, exactly as given."""
        out_NM = np.ones((len(index), self.m))
        out_NM[:, :-1] = self.weight[index]
        return out_NM

    def project(self, slopes_MQ: Array, tokens_N: Indices | None = None) -> Array:
        """s = W̃·λ in float64, for these tokens or for all."""
        count = self.weight.shape[0] if tokens_N is None else len(tokens_N)
        s_NQ = np.empty((count, slopes_MQ.shape[1]))
        for part, block in self.weight.blocks(tokens_N):
            np.matmul(block, slopes_MQ[:-1], out=s_NQ[part])
        s_NQ += slopes_MQ[-1]
        return s_NQ

    def combine(self, y_NQ: Array, tokens_N: Indices | None = None) -> Array:
        """Σⱼ yⱼw̃ⱼ in float64, over these tokens or over all: (m, Q)."""
        total_MQ = np.zeros((self.m, y_NQ.shape[1]))
        for part, block in self.weight.blocks(tokens_N):
            total_MQ[:-1] += block.T @ y_NQ[part]
        total_MQ[-1] = y_NQ.sum(axis=0)
        return total_MQ


def whiten(W: Any, rank: int | None = None) -> Whitened:
    """Prepare W for tests at this rank: two passes over W, block by block."""
    given = Float64Rows(W)
    if len(given.shape) != 2 or 0 in given.shape:
        raise ValueError(f"W has shape {given.shape}; expected (vocabulary, width), one row per token.")
    vocabulary, width = given.shape
    if rank is None:
        rank = width
    if not 0 <= rank <= width:
        raise ValueError(f"rank is {rank}; W has {width} columns, so the rank must be between 0 and {width}.")
    weight = given if rank == width else _leading(given, rank)
    gram_MM, sizes = _gram(weight)
    while (fair := in_fair_units(weight, gram_MM.diagonal()[:-1], gram_MM[-1, :-1])) is not None:
        weight = fair
        gram_MM, sizes = _gram(weight)
    basis_MK, left_out = _whitening(weight, gram_MM)
    while len(left_out):
        weight = weight.without(left_out)
        gram_MM, sizes = _gram(weight)
        basis_MK, left_out = _whitening(weight, gram_MM)
    X_VK = np.empty((vocabulary, basis_MK.shape[1]), dtype=np.float32)
    norm_V = np.empty(vocabulary)
    for part, block in weight.blocks():
        X_VK[part] = block @ basis_MK[:-1] + basis_MK[-1]
        norm_V[part] = np.sqrt(np.einsum("vk,vk->v", X_VK[part], X_VK[part], dtype=np.float64))
    return Whitened(weight, X_VK, basis_MK, gram_MM.diagonal().copy(), *sizes, norm_V, weight is not given)


def _leading(given: Float64Rows, rank: int) -> Float64Rows:
    """W·V_r, float64."""
    vocabulary = given.shape[0]
    square_DD = _square(given)
    if (fair := scaled_alike(given, float(square_DD.diagonal().max()) / vocabulary)) is not None:
        given, square_DD = fair, _square(fair)
    directions_DR = np.linalg.eigh(square_DD)[1][:, ::-1][:, :rank]
    projected_VR = np.empty((vocabulary, rank))
    for part, block in given.blocks():
        projected_VR[part] = block @ directions_DR
    size_R = np.sqrt(np.einsum("vr,vr->r", projected_VR, projected_VR))
    projected_VR[:, size_R <= ROUNDING * size_R.max(initial=0.0)] = 0
    return Float64Rows(projected_VR)


def _square(weight: Float64Rows) -> Array:
    """WᵀW; not finite where W is not, or is too large."""
    square_DD = np.zeros((weight.shape[1], weight.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for _, block in weight.blocks():
            square_DD += block.T @ block
    return square_DD


def _gram(weight: Float64Rows) -> tuple[Array, tuple[Array, float]]:
    """(1/V) W̃ᵀW̃; the largest entries of its columns, and its longest row. W may be too large for some."""
    vocabulary, width = weight.shape
    gram_MM, largest_M, longest = np.zeros((width + 1, width + 1)), np.ones(width + 1), 0.0
    largest_M[:-1] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for _, block in weight.blocks():
            gram_MM[:-1, :-1] += block.T @ block
            gram_MM[-1, :-1] += block.sum(axis=0)
            longest = max(longest, float(np.einsum("vd,vd->v", block, block).max()))
            np.maximum(largest_M[:-1], block.max(axis=0), out=largest_M[:-1])
            np.maximum(largest_M[:-1], -block.min(axis=0), out=largest_M[:-1])
    gram_MM[:-1, -1], gram_MM[-1, -1] = gram_MM[-1, :-1], vocabulary
    return gram_MM / vocabulary, (largest_M, float(np.sqrt(longest + 1)))


def _whitening(weight: Float64Rows, gram_MM: Array) -> tuple[Array, Indices]:
    """B with BᵀGB = I, and columns of W that have to be left out for there to be one.

    Columns are scaled first: units do not matter.
    """
    column_M = gram_MM.diagonal()
    scale_M = np.where(column_M > 0, 1 / np.sqrt(np.where(column_M > 0, column_M, 1.0)), 0.0)
    values_M, vectors_MM = np.linalg.eigh(gram_MM * scale_M[:, None] * scale_M)
    least = LEAST * values_M[-1]
    unscaled_MM: Array = vectors_MM / np.sqrt(np.maximum(values_M, least))
    basis_MM = scale_M[:, None] * unscaled_MM
    if values_M[0] > NEARLY * values_M[-1]:
        return basis_MM, np.empty(0, dtype=np.intp)
    again_MM = np.zeros_like(gram_MM)
    for _, block in weight.blocks():
        once_NM = block @ basis_MM[:-1] + basis_MM[-1]
        again_MM += once_NM.T @ once_NM
    values_M, vectors_MM = np.linalg.eigh(again_MM / weight.shape[0])
    kept_M = values_M > DEPENDENT**2 / LEAST
    if not kept_M.all():
        return basis_MM, made_up_by_others(unscaled_MM @ vectors_MM[:, ~kept_M])
    return basis_MM @ (vectors_MM / np.sqrt(values_M)), np.empty(0, dtype=np.intp)


# Keep a whitened W on disk: one safetensors file, named by what it was made from.
#
# The name is a hash of W's rows, its type and the rank, so that a file can only be found by the W that it
# belongs to. The file holds a checksum of its numbers and of its name; one that does not match is made anew.
# A folder that other users may write to is not used, because wrong numbers would give wrong proofs. The file
# is written beside its place and moved there, so that a reader never sees half of it; a file that cannot be
# read is made anew, and where none can be written (a full disk, a read-only folder) there is none, as the
# logger `unspool.basis.solver.whitening` says at level INFO. The folder holds 4 GB at most: the files
# that were not used for longest go first.


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
