"""A matrix of a model that stays as it is stored: the rows of one or several stored weights, stacked.

    y_NO = x_NI · W_OIᵀ + b_O

W is restored to float32 a few rows at a time, into one buffer that serves every matrix of a thread. That is
the way of long prompts, where it costs little beside the product itself; for a step of a few rows compiled
kernels multiply the packed numbers where they lie.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn

from unspool.nn.direct_call import DirectCall
from unspool.nn.stored.formats import F32
from unspool.nn.stored.weight import StoredWeight

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
    """Stored weights of the same width below each other, and perhaps a bias. It takes no gradients."""

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
