"""Whiten the output matrix W for the basis-aware test, and cache the result on disk.

    W̃ = [W·V_r, 1]      (1/V) W̃ᵀW̃ = S·QΛQᵀ·S,  S = diag√      B = S⁻¹QΛ^(−½)      X = W̃·B,   (1/V) XᵀX = I

Rank: V_r are the r leading right-singular directions of W, uncentred and unscaled. Fewer equalities leave
more distributions feasible, so a token accepted at rank r is accepted at every higher rank. Linearly
dependent columns (duplicate or constant columns, fewer rows than columns) give eigenvalues of zero and are
dropped. Squaring W̃ loses half of float64's digits, so nearly dependent columns are whitened twice.

Finlayson et al. 2024, §4 and appendix (rank reduction by a truncated singular value decomposition).
papers.bib: finlayson2024closing

Memory at V = 200,000 and d = 4,096: X in float32 takes 3.3 GB; W itself is neither copied nor converted at
full rank; Q, B and eigh's workspace take 0.7 GB, blocks in float64 0.2 GB. W may stay on disk (np.memmap)
or in half precision. At rank 100 X takes 80 MB and the projected rows in float64 160 MB.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from scipy.linalg import qr

from unspool.arguments import as_int, shown
from unspool.basis.arrays import Array, Array32, Indices, as_numpy
from unspool.io import cache_folder, check_disk_space, new_file, private_folder

# A direction of W̃ shorter than this, relative to the longest, is rounding error.
RANK_TOLERANCE = 1e-10
# Eigenvalues of (1/V)W̃ᵀW̃ relative to the largest: if any is below the first bound, whiten a second time;
# the first whitening clips them to the second bound.
REWHITEN_BELOW = 1e-8
MIN_EIGENVALUE = 1e-14
# A singular direction of W shorter than this, relative to the longest, is rounding error.
SINGULAR_TOLERANCE = 1e-13


# Rows per block: a block in float64 fits the processor's cache.
BLOCK = 1024


class Float64Rows:
    """Rows of a numpy array, memory map or torch tensor W in float64, converted block by block."""

    def __init__(self, W: Any) -> None:
        # A torch tensor keeps its type (numpy lacks bfloat16); a GPU tensor is copied to the host once.
        torch = hasattr(W, "detach")
        on_host: Any = W.detach().cpu() if torch else np.asarray(W)
        self.W, self.shape = on_host, tuple(on_host.shape)
        self._bfloat16 = str(on_host.dtype) == "torch.bfloat16"
        # The same memory; numpy gathers rows several times faster than torch does.
        self._array = on_host.numpy() if torch and not self._bfloat16 else on_host

    def __getitem__(self, index: Any) -> Array:
        if self._bfloat16:
            converted: Array = self.W[index].double().numpy()
            return converted
        block = self._array[index] if isinstance(index, slice) else self._array.take(index, axis=0)
        return np.asarray(block, dtype=np.float64)

    def blocks(self, index: Indices | None = None) -> Iterator[tuple[slice, Array]]:
        """Blocks of these rows, or of all rows, each with its slice."""
        count = self.shape[0] if index is None else len(index)
        for start in range(0, count, BLOCK):
            part = slice(start, min(start + BLOCK, count))
            yield part, self[part if index is None else index[part]]

    def without_columns(self, columns_C: Indices) -> Float64Rows:
        return Float64Rows(self.W[:, np.setdiff1d(np.arange(self.shape[1]), columns_C)])


# Columns with mean squares outside this range are scaled: float64 would underflow or overflow.
MIN_MEAN_SQUARE, MAX_MEAN_SQUARE = 1e-200, 1e200
# Columns with less variance than this, relative to their mean square, are shifted.
MIN_RELATIVE_VARIANCE = 1e-6


def scale_columns(weight: Float64Rows, square_D: Array, mean_D: Array) -> Float64Rows | None:
    """Scale and shift columns that float64 handles badly; None if all are fine.

        W̃ᵀp = W̃ᵀp̂   ⇔   (W̃T)ᵀp = (W̃T)ᵀp̂   for any invertible T; W̃ = [W, 1]

    So a column may be scaled and, because W̃ contains the ones, shifted. Neither step rounds: columns whose
    squares would overflow or underflow are multiplied by powers of two; a nearly constant column whose
    entries are all within a factor of two is reduced by its smallest entry.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        variance_D = square_D - mean_D * mean_D
        is_in_range_D = (square_D > MIN_MEAN_SQUARE) & (square_D < MAX_MEAN_SQUARE)
        is_nearly_constant_D = is_in_range_D & (variance_D < MIN_RELATIVE_VARIANCE * square_D)
    if (is_in_range_D & ~is_nearly_constant_D).all():
        return None
    low_D, high_D = _column_ranges(weight)
    size_D = np.maximum(np.abs(low_D), np.abs(high_D))
    power_D = np.where(~is_in_range_D & (size_D > 0), np.frexp(size_D)[1], 0)
    # For y between x and 2x, x − y is exact in float64.
    is_within_factor_two_D = np.minimum(np.abs(low_D), np.abs(high_D)) * 2 >= size_D
    has_one_sign_D = np.sign(low_D) == np.sign(high_D)
    shift_D = np.where(
        is_nearly_constant_D & is_within_factor_two_D & has_one_sign_D & (low_D < high_D), low_D, 0.0
    )
    return _rescale(weight, power_D, shift_D) if power_D.any() or shift_D.any() else None


def scale_uniformly(weight: Float64Rows, square: float) -> Float64Rows | None:
    """Multiply all columns by one power of two, given their largest mean square; None if not needed."""
    if MIN_MEAN_SQUARE < square < MAX_MEAN_SQUARE:
        return None
    power = np.frexp(np.abs(_column_ranges(weight)).max(initial=0))[1]
    return _rescale(weight, power, 0.0) if power else None


def _rescale(weight: Float64Rows, power: Any, shift: Any) -> Float64Rows:
    """(W − shift)·2^(−power)."""
    scaled_VD = np.empty(weight.shape)
    for part, block in weight.blocks():
        scaled_VD[part] = np.ldexp(block - shift, -power)
    return Float64Rows(scaled_VD)


def dependent_columns(null_MD: Array) -> Indices:
    """Columns to drop, one for each null vector n with W̃n = 0; never the ones column.

    They depend on the others up to 10⁻¹⁰ of their size. Without them the test has the same answer if the
    dependence is exact, and otherwise fewer equalities, which is stricter and therefore sound.
    """
    order_M = qr(null_MD[:-1].T, mode="r", pivoting=True)[1]
    return np.sort(order_M[: null_MD.shape[1]])


def _column_ranges(weight: Float64Rows) -> tuple[Array, Array]:
    low_D, high_D = np.full(weight.shape[1], np.inf), np.full(weight.shape[1], -np.inf)
    for _, block in weight.blocks():
        if not np.isfinite(block).all():
            raise ValueError("W contains NaN or infinite entries")
        low_D, high_D = np.minimum(low_D, block.min(axis=0)), np.maximum(high_D, block.max(axis=0))
    return low_D, high_D


@dataclass(frozen=True, eq=False)
class WhitenedMatrix:
    """W̃ in two coordinate systems: exact rows in float64 for proofs, whitened float32 rows for the search."""

    weight: Float64Rows
    """W̃ without its ones column: W at full rank, else W·V_r in float64; columns may be scaled or dropped."""
    X_VK: Array32
    basis_MK: Array
    """B maps λ of the search to coordinates of W̃: s = X·λ = W̃·B·λ."""
    mean_square_M: Array
    max_abs_M: Array
    max_row_norm: float
    norm_V: Array = field(repr=False)
    is_derived: bool
    """False if `weight` is W itself."""

    @cached_property
    def m(self) -> int:
        """Columns of W̃: rank + 1."""
        return int(self.basis_MK.shape[0])

    @cached_property
    def basis_abs_bound(self) -> float:
        """A bound on the norm over k of Σₘ|wₘ||Bₘₖ|, for every row w of W̃."""
        by_length = self.max_row_norm * np.linalg.norm(self.basis_MK)
        return float(min(by_length, np.linalg.norm(self.max_abs_M @ np.abs(self.basis_MK))))

    def abs_dot_bound(self, dual_MQ: Array) -> Array:
        """A bound on Σₘ|wₘ||λₘ| for every row w of W̃, (Q,): the smaller of two."""
        bound_Q: Array = self.max_row_norm * np.sqrt(np.einsum("mq,mq->q", dual_MQ, dual_MQ))
        np.minimum(bound_Q, self.max_abs_M @ np.abs(dual_MQ), out=bound_Q)
        return bound_Q

    def rows(self, index: Indices) -> Array:
        """Exact rows of W̃ in float64."""
        out_NM = np.ones((len(index), self.m))
        out_NM[:, :-1] = self.weight[index]
        return out_NM

    def project(self, dual_MQ: Array, tokens_N: Indices | None = None) -> Array:
        """s = W̃·λ in float64, for these tokens or all."""
        count = self.weight.shape[0] if tokens_N is None else len(tokens_N)
        s_NQ = np.empty((count, dual_MQ.shape[1]))
        for part, block in self.weight.blocks(tokens_N):
            np.matmul(block, dual_MQ[:-1], out=s_NQ[part])
        s_NQ += dual_MQ[-1]
        return s_NQ

    def combine(self, y_NQ: Array, tokens_N: Indices | None = None) -> Array:
        """Σⱼ yⱼw̃ⱼ in float64, over these tokens or all: (m, Q)."""
        total_MQ = np.zeros((self.m, y_NQ.shape[1]))
        for part, block in self.weight.blocks(tokens_N):
            total_MQ[:-1] += block.T @ y_NQ[part]
        total_MQ[-1] = y_NQ.sum(axis=0)
        return total_MQ


def whiten(W: Any, rank: int | None = None) -> WhitenedMatrix:
    """Whiten W at this rank, in two passes over its blocks."""
    rows = Float64Rows(W)
    if len(rows.shape) != 2 or 0 in rows.shape:
        raise ValueError(f"W has shape {rows.shape}; expected (vocabulary, width), one row per token.")
    vocabulary, width = rows.shape
    if rank is not None:
        rank = as_int("rank", rank, at_least=0, at_most=width, advice=f"None is {width}, the width of W.")
    weight = rows if rank in (None, width) else _project_to_leading_directions(rows, rank)
    while True:
        gram_MM, sizes = _gram(weight)
        gram_MM /= vocabulary
        if (scaled := scale_columns(weight, gram_MM.diagonal()[:-1], gram_MM[-1, :-1])) is not None:
            weight = scaled
            continue
        basis_MK, dropped = _whitening_basis(weight, gram_MM)
        if not len(dropped):
            break
        weight = weight.without_columns(dropped)
    X_VK = np.empty((vocabulary, basis_MK.shape[1]), dtype=np.float32)
    norm_V = np.empty(vocabulary)
    for part, block in weight.blocks():
        X_VK[part] = block @ basis_MK[:-1] + basis_MK[-1]
        norm_V[part] = np.sqrt(np.einsum("vk,vk->v", X_VK[part], X_VK[part], dtype=np.float64))
    return WhitenedMatrix(
        weight, X_VK, basis_MK, gram_MM.diagonal().copy(), *sizes, norm_V, weight is not rows
    )


def _project_to_leading_directions(rows: Float64Rows, rank: int) -> Float64Rows:
    """W·V_r in float64."""
    vocabulary = rows.shape[0]
    square_DD = _gram(rows)[0][:-1, :-1]
    if (scaled := scale_uniformly(rows, float(square_DD.diagonal().max()) / vocabulary)) is not None:
        rows, square_DD = scaled, _gram(scaled)[0][:-1, :-1]
    directions_DR = np.linalg.eigh(square_DD)[1][:, ::-1][:, :rank]
    projected_VR = np.empty((vocabulary, rank))
    for part, block in rows.blocks():
        projected_VR[part] = block @ directions_DR
    size_R = np.sqrt(np.einsum("vr,vr->r", projected_VR, projected_VR))
    projected_VR[:, size_R <= SINGULAR_TOLERANCE * size_R.max(initial=0.0)] = 0
    return Float64Rows(projected_VR)


def _gram(weight: Float64Rows) -> tuple[Array, tuple[Array, float]]:
    """W̃ᵀW̃, the largest entry of each column, and the longest row; infinite if W is too large."""
    vocabulary, width = weight.shape
    gram_MM, max_abs_M, longest = np.zeros((width + 1, width + 1)), np.ones(width + 1), 0.0
    max_abs_M[:-1] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for _, block in weight.blocks():
            gram_MM[:-1, :-1] += block.T @ block
            gram_MM[-1, :-1] += block.sum(axis=0)
            longest = max(longest, float(np.einsum("vd,vd->v", block, block).max()))
            np.maximum(max_abs_M[:-1], block.max(axis=0), out=max_abs_M[:-1])
            np.maximum(max_abs_M[:-1], -block.min(axis=0), out=max_abs_M[:-1])
    gram_MM[:-1, -1], gram_MM[-1, -1] = gram_MM[-1, :-1], vocabulary
    return gram_MM, (max_abs_M, float(np.sqrt(longest + 1)))


def _whitening_basis(weight: Float64Rows, gram_MM: Array) -> tuple[Array, Indices]:
    """B with BᵀGB = I after scaling columns to unit size, or the dependent columns of W to drop first."""
    mean_square_M = gram_MM.diagonal()
    scale_M = np.where(mean_square_M > 0, 1 / np.sqrt(np.where(mean_square_M > 0, mean_square_M, 1.0)), 0.0)
    values_M, vectors_MM = np.linalg.eigh(gram_MM * scale_M[:, None] * scale_M)
    least = MIN_EIGENVALUE * values_M[-1]
    unscaled_MM: Array = vectors_MM / np.sqrt(np.maximum(values_M, least))
    basis_MM = scale_M[:, None] * unscaled_MM
    if values_M[0] > REWHITEN_BELOW * values_M[-1]:
        return basis_MM, np.empty(0, dtype=np.intp)
    second_gram_MM = np.zeros_like(gram_MM)
    for _, block in weight.blocks():
        whitened_NM = block @ basis_MM[:-1] + basis_MM[-1]
        second_gram_MM += whitened_NM.T @ whitened_NM
    values_M, vectors_MM = np.linalg.eigh(second_gram_MM / weight.shape[0])
    kept_M = values_M > RANK_TOLERANCE**2 / MIN_EIGENVALUE
    if not kept_M.all():
        return basis_MM, dependent_columns(unscaled_MM @ vectors_MM[:, ~kept_M])
    return basis_MM @ (vectors_MM / np.sqrt(values_M)), np.empty(0, dtype=np.intp)


CACHE_FORMAT = 5
MAX_CACHE_BYTES = 4_000_000_000

_log = logging.getLogger(__name__)


def default_cache_folder() -> Path:
    """The folder `basis` in the user's cache folder (environment variable UNSPOOL_CACHE)."""
    return cache_folder() / "basis"


def load_or_whiten(W: Any, rank: int | None, folder: str | os.PathLike[str] | None) -> WhitenedMatrix:
    """`whiten(W, rank)`, cached as a safetensors file in `folder`.

    The file name is a hash of W's rows, its type and the rank; the file has a checksum of its numbers and
    its name, and is rebuilt if that does not match. A folder that other users may write to is not used,
    because wrong numbers would give wrong proofs. Files are written atomically. If writing fails (full
    disk, read-only folder), the logger `unspool.basis.solver.whitening` reports it at level INFO. The
    folder holds at most 4 GB; the least recently used files are removed first.
    """
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise TypeError(f"cache is {shown(folder)}; expected the path of a folder, or None")
    if folder is None:
        return whiten(W, rank)
    path = Path(folder) / f"basis-{fingerprint(W, rank)}.safetensors"
    whitened = _load(path, W)
    if whitened is None:
        whitened = whiten(W, rank)
        try:
            _save(path, whitened)
            _evict_old_files(path)
        except OSError as error:
            _log.info("cannot write %s, it will be computed again next time: %s", path, error)
    return whitened


def fingerprint(W: Any, rank: int | None) -> str:
    rows = Float64Rows(W)
    rank = rows.shape[1] if rank is None else rank
    digest = blake2b(
        f"{CACHE_FORMAT} {rows.shape} {rank} {as_numpy(rows.W[:1]).dtype}".encode(), digest_size=20
    )
    for start in range(0, rows.shape[0], 4096):
        digest.update(np.ascontiguousarray(as_numpy(rows.W[start : start + 4096])).data)
    return digest.hexdigest()


def _load(path: Path, W: Any) -> WhitenedMatrix | None:
    try:
        private_folder(path.parent)
        with safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if (file.metadata() or {}).get("checksum") != _checksum(path, arrays):
                return None
        os.utime(path)
        is_derived, row_norm = "weight" in arrays, float(arrays.pop("max_row_norm")[0])
        weight = Float64Rows(arrays.pop("weight", W))
        return WhitenedMatrix(weight=weight, is_derived=is_derived, max_row_norm=row_norm, **arrays)
    except (OSError, SafetensorError, KeyError):
        return None


def _save(path: Path, whitened: WhitenedMatrix) -> None:
    names = ("X_VK", "basis_MK", "mean_square_M", "max_abs_M", "norm_V")
    arrays = {name: np.ascontiguousarray(getattr(whitened, name)) for name in names}
    arrays["max_row_norm"] = np.array([whitened.max_row_norm])
    if whitened.is_derived:
        arrays["weight"] = np.ascontiguousarray(as_numpy(whitened.weight.W))
    size = sum(array.nbytes for array in arrays.values())
    if size > MAX_CACHE_BYTES:
        raise OSError(
            f"{size / 1e9:.1f} GB exceed the limit of {MAX_CACHE_BYTES / 1e9:.1f} GB for {path.parent}"
        )
    private_folder(path.parent)
    check_disk_space(path.parent, size)
    with new_file(path) as fresh:
        save_file(arrays, fresh, {"checksum": _checksum(path, arrays)})


def _checksum(path: Path, arrays: dict[str, NDArray[Any]]) -> str:
    digest = blake2b(path.name.encode(), digest_size=20)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _evict_old_files(newest: Path) -> None:
    """Remove the least recently used files until the folder fits MAX_CACHE_BYTES."""
    files = sorted(newest.parent.glob("basis-*.safetensors"), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in files)
    for path in files:
        if total <= MAX_CACHE_BYTES or path == newest:
            return
        total -= path.stat().st_size
        path.unlink(missing_ok=True)
