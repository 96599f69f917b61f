"""One matrix as it is stored: packed rows, of which a few at a time become float32.

The bytes may be a map of a file. The system then reads them when they are first used, and can let go of them
again; the file must not change while it is used.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unspool.engine.weight_formats import F32, FLOATS, INT8, UNPACK, Format, all_finite
from unspool.nn.linear import DirectCall

CHUNK = 1 << 18
"""Numbers restored at once: enough that torch's own overhead vanishes, few enough to stay in a cache."""


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A matrix of so many rows and columns. Nobody writes to it: copies of a model share it."""

    format: Format
    packed: Tensor
    """(rows, bytes of a row), uint8, rows behind each other; or sets of rows that lie side by side."""
    shape: tuple[int, int]
    """Rows and columns."""

    def __post_init__(self) -> None:
        rows, columns = self.shape
        expected = self.format.packed_shape(rows, columns)
        if tuple(self.packed.shape) != expected or self.packed.dtype != torch.uint8:
            raise ValueError(
                f"{rows} rows of {columns} numbers in {self.format.name} are {list(expected)} bytes, "
                f"and this is a tensor {list(self.packed.shape)} of {self.packed.dtype}"
            )
        if columns % self.format.block and self.format != INT8:
            raise ValueError(
                f"rows of {columns} numbers are no whole blocks of {self.format.block}, as "
                f"{self.format.name} has them"
            )
        if not self.packed.is_contiguous():
            raise ValueError("packed rows must lie behind each other: make the tensor contiguous")

    def __deepcopy__(self, memo: object) -> StoredWeight:
        return self

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.packed.nbytes

    def is_finite(self) -> bool:
        """Whether all numbers are: a file that was damaged, or a run that diverged, may hold others.

        Only the scales are looked at, where there are scales.
        """
        for blocks in torch.split(self.packed.view(-1, self.format.side * self.format.block_bytes), CHUNK):
            for at, kind in FLOATS[self.format]:
                if not all_finite(blocks[:, at : at + kind.itemsize].view(kind)):
                    return False
        return True

    def restore(self, rows: slice | Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """The numbers of these rows (of all, where none are named) in float32: (R, columns)."""
        wanted = slice(None) if rows is None else rows
        if self.format == F32 and out is None:
            return self.packed[wanted].view(torch.float32)
        if self.format.side > 1:
            return self._restore_sets(torch.arange(self.shape[0])[wanted], out)
        packed, columns = self.packed[wanted], self.shape[1]
        if out is None:
            out = torch.empty(len(packed), columns)
        step = max(1, CHUNK // columns)
        for first in range(0, len(packed), step):
            self._unpack(packed[first : first + step], out[first : first + step])
        return out

    def _unpack(self, packed: Tensor, out: Tensor) -> None:
        block, block_bytes = self.format.block, self.format.block_bytes
        blocks = packed.view(-1, block_bytes)
        if self.shape[1] % block == 0:
            UNPACK[self.format](blocks, out.view(-1, block))
        else:
            whole = torch.empty(len(blocks), block)
            UNPACK[self.format](blocks, whole)
            out.copy_(whole.view(len(packed), -1)[:, : self.shape[1]])

    def _restore_sets(self, rows: Tensor, out: Tensor | None) -> Tensor:
        """Rows that lie side by side with others: a whole set becomes float32 for one of them."""
        side, columns = self.format.side, self.shape[1]
        width = -(-columns // self.format.block) * self.format.block
        if out is None:
            out = torch.empty(len(rows), columns)
        sets, which = torch.unique_consecutive(rows // side, return_inverse=True)
        step = max(1, CHUNK // (columns * side))
        for first in range(0, len(sets), step):
            some = sets[first : first + step]
            numbers = torch.empty(len(some) * side, width)
            UNPACK[self.format](self.packed[some], numbers)
            here = (first <= which) & (which < first + step)
            out[here] = numbers[(which[here] - first) * side + rows[here] % side, :columns]
        return out


NUMBERS = 1 << 20
"""Restored at once (4 MB): rows enough for a quick product, few enough to stay in a cache."""


class _Buffer(threading.local):
    """Memory for restored rows, of this thread alone."""

    def __init__(self) -> None:
        self.numbers: Tensor = torch.empty(0)

    def rows(self, count: int, columns: int) -> Tensor:
        if self.numbers.numel() < count * columns:
            with torch.inference_mode(False):  # it must serve outside of inference mode, too
                self.numbers = torch.empty(count * columns)
        return self.numbers[: count * columns].view(count, columns)


_buffer = _Buffer()


class StoredMatrix(DirectCall):
    """Stored weights of the same width below each other, and perhaps a bias. It takes no gradients.

    A matrix of a model that stays as it is stored: the rows of one or several stored weights, stacked.

        y_NO = x_NI · W_OIᵀ + b_O

    W is restored to float32 a few rows at a time, into one buffer that serves every matrix of a thread. That
    is the way of long prompts, where it costs little beside the product itself; for a step of a few rows
    compiled kernels multiply the packed numbers where they lie.
    """

    def __init__(self, pieces: tuple[StoredWeight, ...], bias: Tensor | None = None) -> None:
        super().__init__()
        widths = sorted({piece.shape[1] for piece in pieces})
        if len(widths) != 1:
            raise ValueError(f"weights stacked by rows must be equally wide, and these are {widths}")
        self.pieces = pieces
        self.rows, self.columns = sum(piece.shape[0] for piece in pieces), widths[0]
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self._restored: weakref.ref[Tensor] | None = None

    @property
    def weight(self) -> Tensor:
        """(rows, columns): the whole matrix in float32, which lasts as long as somebody holds it."""
        weight = None if self._restored is None else self._restored()
        if weight is None:
            with torch.inference_mode(False), torch.no_grad():
                weight = torch.empty(self.rows, self.columns)
                for first, last, piece in self._places():
                    piece.restore(out=weight[first:last])
            self._restored = weakref.ref(weight)
        return weight

    @property
    def nbytes(self) -> int:
        """Bytes that the weights take as they are stored."""
        return sum(piece.nbytes for piece in self.pieces)

    def product(self, x: Tensor) -> Tensor:
        """x · Wᵀ + b: (…, columns) → (…, rows), in float32."""
        self.refuse_gradients(x)
        with torch.autocast("cpu", enabled=False) if torch.is_autocast_enabled("cpu") else nullcontext():
            flat = x.reshape(-1, self.columns).float()
            y = flat.new_empty(len(flat), self.rows)
            most = max(1, NUMBERS // self.columns)
            for begin, _, piece in self._places():
                for first in range(0, piece.shape[0], most):
                    last = min(first + most, piece.shape[0])
                    # What is float32 already is used where it lies.
                    room = None if piece.format == F32 else _buffer.rows(last - first, self.columns)
                    w = piece.restore(slice(first, last), room)
                    torch.mm(flat, w.t(), out=y[:, begin + first : begin + last])
            if self.bias is not None:
                y += self.bias
        return y.view(*x.shape[:-1], self.rows)

    def take(self, index: Tensor) -> Tensor:
        """The rows of these numbers: (…) → (…, columns)."""
        self.refuse_gradients()
        flat = index.reshape(-1)
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < self.rows:
            raise IndexError(
                f"there are rows from 0 to {self.rows - 1}, and {flat.tolist()!s:.80} was asked for"
            )
        out = torch.empty(len(flat), self.columns)
        for first, last, piece in self._places():
            inside = (first <= flat) & (flat < last)
            out[inside] = piece.restore(flat[inside] - first)
        return out.view(*index.shape, self.columns)

    def refuse_gradients(self, x: Tensor | None = None) -> None:
        """Whatever is learnt, stored weights are not: better said than found out."""
        if torch.is_grad_enabled() and (self.training or (x is not None and x.requires_grad)):
            raise RuntimeError(
                "weights that stay as they are stored take no gradients: to train this model, load it with "
                'weights="float32"; to use it, call model.eval() and torch.no_grad()'
            )

    def extra_repr(self) -> str:
        """For print(model)."""
        names = "+".join(dict.fromkeys(piece.format.name for piece in self.pieces))
        return f"{self.rows}, {self.columns}, {names}, bias={self.bias is not None}"

    def _places(self) -> Iterator[tuple[int, int, StoredWeight]]:
        """The first row of every piece, the one behind its last, and the piece."""
        first = 0
        for piece in self.pieces:
            yield first, first + piece.shape[0], piece
            first += piece.shape[0]

    # ── what torch does with every module ───────────────────────────────────────────────────────

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """The restored weights under the name that they have in a model of float32."""
        destination[prefix + "weight"] = self.weight
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        if prefix + "weight" in state:
            raise RuntimeError(
                f"{prefix}weight stays as it is stored, and nothing can be written over it: load the model "
                'with weights="float32" to give it other weights'
            )
        super()._load_from_state_dict(state, prefix, *rest)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        moved = fn(torch.empty(1))
        if moved.device.type != "cpu" or moved.dtype != torch.float32:
            place = f"{str(moved.dtype).removeprefix('torch.')} on {moved.device}"
            raise ValueError(
                f"weights that stay as they are stored are multiplied in float32 on the CPU, not in {place}: "
                'load the model with weights="float32" to move or convert it'
            )
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_restored": None}  # a weak reference is no one else's


# A linear layer, and an embedding, whose weights stay as they are stored.


class StoredLinear(StoredMatrix):
    """x → x · Wᵀ + b; the rows of W may be of several formats (queries, keys and values often are)."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, inputs) → (…, outputs)."""
        return self.product(x)


class StoredEmbedding(StoredMatrix):
    """token → its row of W, which alone is restored."""

    @property
    def num_embeddings(self) -> int:
        """Tokens, as torch calls them."""
        return self.rows

    @property
    def embedding_dim(self) -> int:
        """Width, as torch calls it."""
        return self.columns

    def forward(self, tokens: Tensor) -> Tensor:
        """(…) → (…, width)."""
        return self.take(tokens)


PIECE = 2**25
"""Bytes of a piece. What is larger than a quarter of it has one of its own."""
LINE = 64
"""A weight begins where a line of the cache begins."""


class WeightMemory:
    """A piece, and how much of it is given away. It is freed with the last tensor that lies in it.

    Memory for weights that stay: cut from large pieces, which the system keeps in large pages.

    A step reads all weights from the first to the last. Where pages are of 2 MB rather than 4 kB, the
    processor looks up fewer of them, and memory gives an eighth more. numpy asks for such pages for arrays of
    several megabytes, torch does not, and most matrices are smaller.
    """

    def __init__(self) -> None:
        self._left = np.empty(0, np.uint8)
        self._cutting = threading.Lock()

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """A tensor with nothing in it yet, as `torch.empty`."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        octets = _aligned(size) if size > PIECE // 4 else self._cut(size)
        return torch.from_numpy(octets).view(dtype).reshape(tuple(shape))

    def copy(self, tensor: Tensor) -> Tensor:
        """The same numbers, here."""
        return self.empty(tensor.shape, tensor.dtype).copy_(tensor)

    def _cut(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        rounded = -(-size // LINE) * LINE
        with self._cutting:
            if rounded > self._left.size:
                self._left = _aligned(PIECE)
            taken, self._left = self._left[:size], self._left[rounded:]
        return taken


def _aligned(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    octets = np.empty(size + LINE, np.uint8)
    begin = -octets.ctypes.data % LINE
    return octets[begin : begin + size]


WEIGHT_MEMORY = WeightMemory()
"""That of this process."""


# Any matrix in eight bits a number: groups of 64 along its rows, each with a scale.
#
#     w_i ≈ d · q_i,   d = max_i |w_i| / 127,   q_i = round(w_i / d)   for the 64 numbers of a group
#
# Symmetric rounding to the nearest, ties to even: no number is off by more than d/2, and the largest of a
# group by none but rounding. 16 rows lie side by side (`formats`). Activations stay float32.


LARGEST, MIDDLE = 127, 128
"""The largest whole number, and the byte that stands for 0."""


def quantise_int8(weight: Tensor) -> StoredWeight:
    """The matrix (rows, columns) in INT8."""
    rows, columns = weight.shape
    plain = weight.detach().float().contiguous()
    return requantise_int8(StoredWeight(F32, plain.view(torch.uint8), (rows, columns)))


def requantise_int8(weight: StoredWeight) -> StoredWeight:
    """A stored matrix in INT8, made some rows at a time: it is never there in float32 as a whole."""
    rows, columns = weight.shape
    side = INT8.side
    packed = WEIGHT_MEMORY.empty(INT8.packed_shape(rows, columns), torch.uint8)
    step = max(1, CHUNK // (columns * side)) * side
    room = None if weight.format == F32 else torch.empty(min(step, rows), columns)
    for first in range(0, rows, step):
        last = min(first + step, rows)
        some = weight.restore(slice(first, last), None if room is None else room[: last - first])
        _pack(some, packed[first // side : -(-last // side)])
    return StoredWeight(INT8, packed, (rows, columns))


def _pack(weight: Tensor, packed: Tensor) -> None:
    """Rows to as many sets of rows side by side as they fill, the last one perhaps in part."""
    (rows, columns), side, block = weight.shape, INT8.side, INT8.block
    below, beside = -rows % side, -columns % block
    numbers = F.pad(weight, (0, beside, 0, below)) if below or beside else weight
    groups = numbers.reshape(len(packed), side, -1, block)
    scale = groups.abs().amax(dim=3, keepdim=True) / LARGEST
    if not bool(scale.isfinite().all()):
        raise ValueError("a matrix with NaN or infinity in it cannot be stored in eight bits")
    # A group of zeros has no scale to divide by; of the smallest numbers, one whose division overflows.
    q = (groups / scale).nan_to_num_(0.0).round_().clamp_(-LARGEST, LARGEST).add_(MIDDLE).to(torch.uint8)
    blocks = packed.view(len(packed), -1, side * INT8.block_bytes)
    blocks[..., : 4 * side].view(torch.float32).copy_(scale[..., 0].transpose(1, 2))
    # Four numbers are a word.
    words = blocks[..., 4 * side :].view(torch.int32).view(len(packed), -1, block // 4, side)
    words.copy_(q.view(torch.int32).permute(0, 2, 3, 1))
