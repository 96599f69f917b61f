"""How the weights of a model are kept in memory, and how each of its tensors comes to be kept so.

    float32      four bytes a number; a matrix that lies in its file so is used there, in a private map
    as stored    matrices as their file has them, used where they lie in it; where they are of a type that
                 is not multiplied as it is, int8
    int8         matrices in eight bits a number (`nn.stored.int8`), made one after another

Norms, biases and learnt positions are float32 in any case: they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor

from unspool.config import word_among
from unspool.models.load.dialect import Target, TensorPart
from unspool.nn.stored.formats import F32
from unspool.nn.stored.int8 import quantise_int8, requantise_int8
from unspool.nn.stored.weight import StoredWeight
from unspool.nn.stored.weight_memory import WEIGHT_MEMORY

Weights = Literal["as stored", "float32", "int8"]
Pieces = tuple[StoredWeight, ...]
"""A matrix that stays as it is stored: these, below each other."""
State = dict[str, Tensor | Pieces]
"""A model's weights by name."""


class Source(Protocol):
    """A file, or several, with named tensors."""

    @property
    def label(self) -> str:
        """Where the tensors come from, for messages."""
        ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape, as stored."""
        ...

    def stored(self, piece: TensorPart) -> StoredWeight | None:
        """A matrix as it lies in the file, or None where it cannot be used so.

        It fails with a ValueError if a number is not finite.
        """
        ...

    def fill(self, piece: TensorPart, out: Tensor) -> None:
        """Write the piece's numbers into `out`, or fail with a ValueError if one is not finite."""
        ...

    def let_go(self, piece: TensorPart) -> None:
        """The piece was read, and is not needed again: what was mapped of it need not stay in memory."""
        ...


def known_weights(name: str | None) -> Weights:
    """The way of that name; None is float32."""
    found = word_among("float32" if name is None else name, KEPT)
    if found is None:
        raise ValueError(f"weights {name!r:.40} is unknown: choose from {', '.join(map(repr, KEPT))}")
    return found


def _as_float32(source: Source, target: Target, *, mapped: bool = True) -> Tensor:
    """The tensor in float32: of a file that has it so, a private map if `mapped`, else a copy."""
    if (
        mapped
        and len(target.pieces) == 1
        and target.pieces[0].source is not None
        and target.pieces[0].as_it_is
    ):
        stored = source.stored(target.pieces[0])
        if stored is not None and stored.format == F32:
            return stored.restore()
    whole = WEIGHT_MEMORY.empty(target.shape)
    rows = [piece.shape[0] for piece in target.pieces] if len(target.pieces) > 1 else []
    for piece, out in zip(target.pieces, torch.split(whole, rows) if rows else [whole], strict=True):
        if piece.source is None:
            out.zero_()
        else:
            _fill(source, piece, out)
    return whole


def _fill(source: Source, piece: TensorPart, out: Tensor) -> None:
    source.fill(piece, out)
    if not piece.as_it_is:
        out.mul_(piece.scale).add_(piece.plus)


def _as_stored(source: Source, target: Target) -> Tensor | Pieces:
    if not target.matrix:
        return _as_float32(source, target)
    pieces = tuple(
        (source.stored(piece) if piece.as_it_is else None) or _quantised(source, piece)
        for piece in target.pieces
    )
    if len(pieces) == 1 and pieces[0].format == F32:
        return pieces[0].restore()  # a weight as any other
    return pieces


def _as_int8(source: Source, target: Target) -> Tensor | Pieces:
    if not target.matrix:
        return _as_float32(source, target, mapped=False)  # so that nothing of the file is needed any more
    return tuple(_quantised(source, piece) for piece in target.pieces)


def _quantised(source: Source, piece: TensorPart) -> StoredWeight:
    stored = source.stored(piece) if piece.as_it_is else None
    if stored is not None:  # memory for all of it in float32 would cost more time than the rounding
        small = requantise_int8(stored)
        source.let_go(piece)
        return small
    whole = torch.empty(piece.shape)
    _fill(source, piece, whole)
    return quantise_int8(whole)


KEPT: dict[Weights, Callable[[Source, Target], Tensor | Pieces]] = {
    "as stored": _as_stored,
    "float32": _as_float32,
    "int8": _as_int8,
}
"""Name → what makes a tensor of ours from those of a file."""
