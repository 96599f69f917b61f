"""How the weights of a model are kept in memory, and how each of its tensors comes to be kept so.

    float32      four bytes a number; a matrix that lies in its file so is used there, in a private map
    as stored    matrices as their file has them, used where they lie in it; where they are of a type that
                 is not multiplied as it is, int8
    int8         matrices in eight bits a number (`nn.stored.int8`), made one after another

Norms, biases and learnt positions are float32 in any case: they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from unspool.config import find_word
from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import (
    WEIGHT_MEMORY,
    StoredEmbedding,
    StoredLinear,
    StoredMatrix,
    StoredWeight,
    quantise_int8,
    requantise_int8,
)
from unspool.engine.weight_formats import F32
from unspool.errors import is_out_of_memory
from unspool.heads.softmax import Softmax, TiedSoftmax
from unspool.models.encoders import RNNEncoder, TransformerEncoder
from unspool.models.loading.weight_layout import SourcePart, TargetTensor
from unspool.nn.linear import Linear

WeightFormat = Literal["stored", "float32", "int8"]
StackedWeights = tuple[StoredWeight, ...]
"""A matrix that stays as it is stored: these, below each other."""
StateDict = dict[str, Tensor | StackedWeights]
"""A model's weights by name."""


class TensorSource(Protocol):
    """A file, or several, with named tensors."""

    @property
    def label(self) -> str:
        """Where the tensors come from, for messages."""
        ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape, as stored."""
        ...

    def stored(self, piece: SourcePart) -> StoredWeight | None:
        """A matrix as it lies in the file, or None where it cannot be used so.

        It fails with a ValueError if a number is not finite.
        """
        ...

    def fill(self, piece: SourcePart, out: Tensor) -> None:
        """Write the piece's numbers into `out`, or fail with a ValueError if one is not finite."""
        ...

    def let_go(self, piece: SourcePart) -> None:
        """The piece was read, and is not needed again: what was mapped of it need not stay in memory."""
        ...


def parse_weights(name: str | None) -> WeightFormat:
    """The way of that name; None is float32."""
    found = find_word("float32" if name is None else name, READERS)
    if found is None:
        raise ValueError(f"weights {name!r:.40} is unknown: choose from {', '.join(map(repr, READERS))}")
    return found


def _read_float32(source: TensorSource, target: TargetTensor, *, mapped: bool = True) -> Tensor:
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


def _fill(source: TensorSource, piece: SourcePart, out: Tensor) -> None:
    source.fill(piece, out)
    if not piece.as_it_is:
        out.mul_(piece.scale).add_(piece.plus)


def _read_stored(source: TensorSource, target: TargetTensor) -> Tensor | StackedWeights:
    if not target.matrix:
        return _read_float32(source, target)
    pieces = tuple(
        (source.stored(piece) if piece.as_it_is else None) or _quantise(source, piece)
        for piece in target.pieces
    )
    if len(pieces) == 1 and pieces[0].format == F32:
        return pieces[0].restore()  # a weight as any other
    return pieces


def _read_int8(source: TensorSource, target: TargetTensor) -> Tensor | StackedWeights:
    if not target.matrix:
        return _read_float32(source, target, mapped=False)  # so that nothing of the file is needed any more
    return tuple(_quantise(source, piece) for piece in target.pieces)


def _quantise(source: TensorSource, piece: SourcePart) -> StoredWeight:
    stored = source.stored(piece) if piece.as_it_is else None
    if stored is not None:  # memory for all of it in float32 would cost more time than the rounding
        small = requantise_int8(stored)
        source.let_go(piece)
        return small
    whole = torch.empty(piece.shape)
    _fill(source, piece, whole)
    return quantise_int8(whole)


READERS: dict[WeightFormat, Callable[[TensorSource, TargetTensor], Tensor | StackedWeights]] = {
    "stored": _read_stored,
    "float32": _read_float32,
    "int8": _read_int8,
}
"""Name → what makes a tensor of ours from those of a file."""


# Parts of a model that stay as they are stored, put in the place of those with float32 weights.
#
#     Linear → StoredLinear,   Embedding → StoredEmbedding,   Softmax → StoredSoftmax
#
# Whoever shares an embedding (a tied head, an encoder) is given the one that has taken its place.


STORED_MODULES: dict[type[nn.Module], type[StoredMatrix]] = {
    Linear: StoredLinear,
    nn.Embedding: StoredEmbedding,
    Softmax: StoredSoftmax,
}
"""A part with a weight → the same, whose weight stays as it is stored."""


def storable_weights(model: nn.Module) -> set[str]:
    """The names of the weights that can stay as they are stored."""
    return {f"{name}.weight" for name, part in model.named_modules() if type(part) in STORED_MODULES}


def install_stored_weights(model: nn.Module, stored: Mapping[str, StackedWeights]) -> None:
    """Give the weights of these names to parts that leave them as they are. Nothing of it learns anymore."""
    shared: dict[nn.Module, StoredMatrix] = {}
    for name, pieces in stored.items():
        module = name.removesuffix(".weight")
        part: Any = model.get_submodule(module)
        bias = None if isinstance(part, nn.Embedding) else part.bias
        shared[part] = STORED_MODULES[type(part)](pieces, bias)
        _replace_module(model, module, shared[part])
    for name, part in list(model.named_modules()):
        if (
            not isinstance(part, TiedSoftmax | TransformerEncoder | RNNEncoder)
            or part._embed[0] not in shared
        ):
            continue
        embed = shared[part._embed[0]]
        if isinstance(part, TiedSoftmax):
            _replace_module(model, name, TiedStoredSoftmax(embed, part.bias))
        else:
            part._embed = (embed,)  # type: ignore[assignment]
    if stored:
        model.requires_grad_(False)


def _replace_module(model: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, part)


# Too little memory for a model, said in words: what did not fit, and what would.


MEMORY_ADVICE: dict[WeightFormat, str] = {
    "float32": 'weights="stored" leaves them in their file, weights="int8" takes a quarter',
    "int8": 'weights="stored" leaves them in their file',
    "stored": "a smaller model, or one that is packed into fewer bits, takes less",
}
"""How weights are kept → what takes less."""


@contextmanager
def memory_errors(name: str, weights: WeightFormat) -> Iterator[None]:
    """A MemoryError with the model's name, whoever could not get the memory: Python, torch or the system."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryError(
            f"{name}: out of memory while loading with weights={weights!r}: {MEMORY_ADVICE[weights]}"
        ) from error


# In which floating-point numbers a model is held and computes: by name, or as torch calls them.


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """The precision of that name."""
    found = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or found not in DTYPES.values():
        raise ValueError(
            f"dtype {dtype!r:.40} is unknown: choose from {', '.join(DTYPES)}, or the same from torch"
        )
    return found


# Where a model runs: a device that is there, or an error that says which are.


def parse_device(name: str | torch.device) -> torch.device:
    """The device of that name, once it has shown that it can hold a number."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {name!r} is unknown: {_known_devices()}") from error
    try:
        torch.empty(1, device=device)
    except Exception as error:  # torch fails in as many ways as there are kinds of devices
        raise ValueError(f"device {str(device)!r} cannot be used here: {_known_devices()}") from error
    return device


def _known_devices() -> str:
    found = ["cpu"]
    if torch.cuda.is_available():
        found += [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    if len(found) == 1:
        return "this machine, or this build of torch, has the device 'cpu' and no other"
    return f"choose from {', '.join(found)}"
