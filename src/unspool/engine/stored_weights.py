"""Stored weights: matrices that stay in their file's format (GGUF, float16, INT8) and are unpacked when used.

The bytes may be a memory-mapped file, which the system reads on first use and can drop again; the file must
not change meanwhile. Also: `quantise_int8`, which converts any matrix to INT8.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.engine.memory import WEIGHT_MEMORY, empty_pooled
from unspool.engine.weight_formats import F32, INT8, SIDE, WeightFormat, all_finite, interleave
from unspool.nn.linear import DirectCall

CHUNK_FLOATS = 1 << 18
"""Numbers unpacked at once: many enough to hide torch's overhead, few enough for the cache."""


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A packed matrix. It is immutable, and copies of a model share it."""

    format: WeightFormat
    packed: Tensor
    """(rows, bytes of a row), uint8; or sets of interleaved rows."""
    shape: tuple[int, int]
    """Rows and columns."""
    release: Callable[[], None] | None = None
    """Allow the system to drop the mapped pages of `packed`."""

    def __post_init__(self) -> None:
        rows, columns = self.shape
        expected = self.format.packed_shape(rows, columns)
        if tuple(self.packed.shape) != expected or self.packed.dtype != torch.uint8:
            raise ValueError(
                f"a {self.format.name} matrix of {rows} × {columns} is a uint8 tensor {list(expected)}, "
                f"not {self.packed.dtype} {list(self.packed.shape)}"
            )
        if columns % self.format.block and self.format != INT8:
            raise ValueError(
                f"{columns} columns are not a multiple of {self.format.block}, the block size of "
                f"{self.format.name}"
            )
        if not self.packed.is_contiguous():
            raise ValueError("packed weights must be contiguous")

    def __deepcopy__(self, memo: object) -> StoredWeight:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"format": self.format, "packed": self.packed, "shape": self.shape, "release": None}

    def is_finite(self) -> bool:
        """True if all numbers are finite; checks only the scales, if there are any.

        A damaged file or a diverged run may contain NaN or infinity.
        """
        kind, set_bytes = self.format.scale_dtype, self.format.side * self.format.block_bytes
        for blocks in torch.split(self.packed.view(-1, set_bytes), CHUNK_FLOATS):
            for at in self.format.scales:
                if not all_finite(blocks[:, at : at + kind.itemsize].view(kind)):
                    return False
        return True

    @cached_property
    def interleaved(self) -> Tensor:
        """The bytes as sets of interleaved rows, which products read; a copy of ggml's formats."""
        if self.format.side > 1:
            return self.packed
        rows, columns = self.shape
        row_bytes = -(-columns // INT8.block) * INT8.block * self.format.block_bytes // self.format.block
        sets = WEIGHT_MEMORY.empty((-(-rows // SIDE), SIDE * row_bytes), torch.uint8)
        step = max(1, CHUNK_FLOATS // columns // SIDE) * SIDE
        for first in range(0, rows, step):
            last = min(first + step, rows)
            interleave(self.format, self.packed[first:last], sets[first // SIDE : -(-last // SIDE)])
        if self.release is not None:
            self.release()
        return sets

    def restore(self, rows: slice | Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """These rows (default: all) in float32: (R, columns)."""
        wanted = slice(None) if rows is None else rows
        if self.format == F32 and out is None:
            return self.packed[wanted].view(torch.float32)
        if self.format.side > 1:
            return self._restore_sets(torch.arange(self.shape[0])[wanted], out)
        packed, columns = self.packed[wanted], self.shape[1]
        if out is None:
            out = torch.empty(len(packed), columns)
        step = max(1, CHUNK_FLOATS // columns)
        for first in range(0, len(packed), step):
            blocks = packed[first : first + step].view(-1, self.format.block_bytes)
            self.format.unpack(blocks, out[first : first + step].view(-1, self.format.block))
        return out

    def _restore_sets(self, rows: Tensor, out: Tensor | None) -> Tensor:
        """Interleaved rows: for one row, its whole set is unpacked."""
        side, columns = self.format.side, self.shape[1]
        width = -(-columns // self.format.block) * self.format.block
        if out is None:
            out = torch.empty(len(rows), columns)
        sets, which = torch.unique_consecutive(rows // side, return_inverse=True)
        step = max(1, CHUNK_FLOATS // (columns * side))
        for first in range(0, len(sets), step):
            some = sets[first : first + step]
            numbers = torch.empty(len(some) * side, width)
            self.format.unpack(self.packed[some], numbers)
            here = (first <= which) & (which < first + step)
            out[here] = numbers[(which[here] - first) * side + rows[here] % side, :columns]
        return out


BUFFER_FLOATS = 1 << 20
"""Numbers of the unpacking buffer (4 MB): enough rows for a quick product, few enough for the cache."""


class StoredMatrix(DirectCall):
    """A module with a matrix of stacked stored weights and an optional bias, without gradients.

        y_NO = x_NI · W_OIᵀ + b_O

    W is unpacked to float32 a few rows at a time. For long prompts this costs little beside the product; for
    a step of a few rows, compiled kernels multiply the packed numbers directly.
    """

    def __init__(self, pieces: tuple[StoredWeight, ...], bias: Tensor | None = None) -> None:
        super().__init__()
        widths = sorted({piece.shape[1] for piece in pieces})
        if len(widths) != 1:
            raise ValueError(f"stacked weights must have equal widths, not {widths}")
        self.pieces = pieces
        self.rows, self.columns = sum(piece.shape[0] for piece in pieces), widths[0]
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self._restored: weakref.ref[Tensor] | None = None

    @property
    def weight(self) -> Tensor:
        """(rows, columns): the matrix in float32, cached as long as it is referenced elsewhere."""
        weight = None if self._restored is None else self._restored()
        if weight is None:
            with torch.inference_mode(False), torch.no_grad():
                weight = torch.empty(self.rows, self.columns)
                for first, last, piece in self._places():
                    piece.restore(out=weight[first:last])
            self._restored = weakref.ref(weight)
        return weight

    def product(self, x: Tensor) -> Tensor:
        """x · Wᵀ + b: (…, columns) → (…, rows), in float32."""
        self.refuse_gradients(x)
        with torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext():
            flat = x.reshape(-1, self.columns).float()
            y = flat.new_empty(len(flat), self.rows)
            most = max(1, BUFFER_FLOATS // self.columns)
            rows = torch.from_numpy(empty_pooled(most, self.columns))
            for begin, _, piece in self._places():
                for first in range(0, piece.shape[0], most):
                    last = min(first + most, piece.shape[0])
                    # float32 weights are used in place.
                    buffer = None if piece.format == F32 else rows[: last - first]
                    w = piece.restore(slice(first, last), buffer)
                    torch.mm(flat, w.t(), out=y[:, begin + first : begin + last])
            if self.bias is not None:
                y += self.bias
        return y.view(*x.shape[:-1], self.rows)

    def take(self, index: Tensor) -> Tensor:
        """The rows with these indices: (…) → (…, columns)."""
        self.refuse_gradients()
        flat = index.reshape(-1)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < self.rows:
            raise IndexError(f"row indices must be 0 to {self.rows - 1}, not {flat.tolist()!s:.80}")
        out = torch.empty(len(flat), self.columns)
        for first, last, piece in self._places():
            inside = (first <= flat) & (flat < last)
            out[inside] = piece.restore(flat[inside] - first)
        return out.view(*index.shape, self.columns)

    def refuse_gradients(self, x: Tensor | None = None) -> None:
        """Raise if gradients are expected, because stored weights do not learn."""
        if torch.is_grad_enabled() and (self.training or (x is not None and x.requires_grad)):
            raise RuntimeError(
                'stored weights have no gradients: to train, load the model with weights="float32"; '
                "to decode, call model.eval() and torch.no_grad()"
            )

    def extra_repr(self) -> str:
        """For print(model)."""
        names = "+".join(dict.fromkeys(piece.format.name for piece in self.pieces))
        return f"{self.rows}, {self.columns}, {names}, bias={self.bias is not None}"

    def _places(self) -> Iterator[tuple[int, int, StoredWeight]]:
        """The row range of every piece, and the piece."""
        first = 0
        for piece in self.pieces:
            yield first, first + piece.shape[0], piece
            first += piece.shape[0]

    # ── torch's module protocol ──────────────────────────────────────────────────────────────────

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Save the unpacked weights under the name of a float32 model."""
        destination[prefix + "weight"] = self.weight
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        if prefix + "weight" in state:
            raise RuntimeError(
                f"{prefix}weight is stored and cannot be overwritten: load the model with "
                'weights="float32" to change it'
            )
        super()._load_from_state_dict(state, prefix, *rest)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        moved = fn(torch.empty(1))
        if moved.device.type != "cpu" or moved.dtype != torch.float32:
            place = f"{str(moved.dtype).removeprefix('torch.')} on {moved.device}"
            raise ValueError(
                f"stored weights run in float32 on the CPU, not in {place}: load the model with "
                'weights="float32" to move or convert it'
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_restored": None}  # a weak reference cannot be pickled


class StoredLinear(StoredMatrix):
    """x → x · Wᵀ + b; the rows of W may have several formats (queries, keys and values often do)."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        return self.product(x)


class StoredEmbedding(StoredMatrix):
    """token → its row of W, the only one that is unpacked."""

    @property
    def num_embeddings(self) -> int:
        """Rows, under torch's name."""
        return self.rows

    @property
    def embedding_dim(self) -> int:
        """Columns, under torch's name."""
        return self.columns

    def forward(self, tokens: Tensor) -> Tensor:
        """(…) → (…, width)."""
        return self.take(tokens)


MAX_CODE, ZERO_BYTE = 127, 128
"""The largest code, and the byte of code 0."""


def quantise_int8(weight: Tensor) -> StoredWeight:
    """Quantise a matrix (rows, columns) to INT8, in groups of 64 numbers of a row:

        w_i ≈ d · q_i,   d = max_i |w_i| / 127,   q_i = round(w_i / d)

    Rounding is symmetric to the nearest, ties to even: errors are at most d/2, and the largest number of a
    group is exact up to float32 rounding. Activations stay float32.
    """
    rows, columns = weight.shape
    plain = weight.detach().float().contiguous()
    return requantise_int8(StoredWeight(F32, plain.view(torch.uint8), (rows, columns)))


def requantise_int8(weight: StoredWeight) -> StoredWeight:
    """Convert a stored matrix to INT8, some rows at a time, so that it is never in float32 as a whole."""
    rows, columns = weight.shape
    side = INT8.side
    packed = WEIGHT_MEMORY.empty(INT8.packed_shape(rows, columns), torch.uint8)
    step = max(1, CHUNK_FLOATS // (columns * side)) * side
    buffer = None if weight.format == F32 else torch.empty(min(step, rows), columns)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        some = weight.restore(slice(first, last), None if buffer is None else buffer[: last - first])
        _pack(some, packed[first // side : -(-last // side)])
    return StoredWeight(INT8, packed, (rows, columns))


def _pack(weight: Tensor, packed: Tensor) -> None:
    """Pack rows into sets of interleaved rows, padding the last set."""
    (rows, columns), side, block = weight.shape, INT8.side, INT8.block
    below, beside = -rows % side, -columns % block
    numbers = F.pad(weight, (0, beside, 0, below)) if below or beside else weight
    groups = numbers.reshape(len(packed), side, -1, block)
    scale = groups.abs().amax(dim=3, keepdim=True) / MAX_CODE
    if not bool(scale.isfinite().all()):
        raise ValueError("cannot quantise a matrix that contains NaN or infinity")
    # The scale of a group of zeros is 0, and that of tiny numbers overflows in the division.
    q = (groups / scale).nan_to_num_(0.0).round_().clamp_(-MAX_CODE, MAX_CODE).add_(ZERO_BYTE).to(torch.uint8)
    blocks = packed.view(len(packed), -1, side * INT8.block_bytes)
    blocks[..., : 4 * side].view(torch.float32).copy_(scale[..., 0].transpose(1, 2))
    # Four numbers are a word.
    words = blocks[..., 4 * side :].view(torch.int32).view(len(packed), -1, block // 4, side)
    words.copy_(q.view(torch.int32).permute(0, 2, 3, 1))
