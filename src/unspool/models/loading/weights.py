"""Weight formats in memory: float32, stored (packed as in the file), or int8; dtypes and devices.

    float32    four bytes per number; a matrix stored as float32 is memory-mapped from its file
    stored     matrices in the format of their file, memory-mapped; types without a kernel become int8
    int8       matrices with eight bits per number (`engine.stored_weights`), converted one by one

Norms, biases and learned positions are always float32: they are small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from unspool.arguments import one_of
from unspool.engine.memory import WEIGHT_MEMORY
from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import (
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
from unspool.models.loading.weight_layout import SourcePart, TargetTensor, TensorSource
from unspool.nn.linear import Linear

WeightFormat = Literal["stored", "float32", "int8"]
WEIGHT_FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)
StackedWeights = tuple[StoredWeight, ...]
"""A matrix in its stored format: parts stacked by rows."""


def parse_weights(name: Any) -> WeightFormat | None:
    """The weight format of that name; None leaves the choice to the kind of file."""
    if name is not None:
        one_of("weights", name, WEIGHT_FORMATS)
    return name


def read_weight(
    source: TensorSource,
    target: TargetTensor,
    weights: WeightFormat,
    *,
    is_matrix: bool,
    is_mapped: bool = True,
) -> Tensor | StackedWeights:
    """One of our tensors; only a matrix (a projection or an embedding) can keep its stored format.

    If `is_mapped`, tensors that the file stores as float32 are views of the memory-mapped file.
    """
    if weights == "float32" or not is_matrix:
        return _read_float32(source, target, is_mapped and weights != "int8")  # int8 lets the file be closed
    if weights == "int8":
        return tuple(_quantise(source, part) for part in target.parts)
    parts = tuple(_stored(source, part) or _quantise(source, part) for part in target.parts)
    return parts[0].restore() if [part.format for part in parts] == [F32] else parts


def _read_float32(source: TensorSource, target: TargetTensor, is_mapped: bool) -> Tensor:
    stored = _stored(source, target.parts[0]) if is_mapped and len(target.parts) == 1 else None
    if stored is not None and stored.format == F32:
        return stored.restore()
    tensor = WEIGHT_MEMORY.empty(target.shape)
    if not target.parts:
        return tensor.zero_()
    for part, out in zip(target.parts, target.split(tensor), strict=True):
        _fill(source, part, out)
    return tensor


def _stored(source: TensorSource, part: SourcePart) -> StoredWeight | None:
    return source.stored(part) if part.is_identity else None


def _fill(source: TensorSource, part: SourcePart, out: Tensor) -> None:
    source.fill(part, out)
    if not part.is_identity:
        out.mul_(part.scale).add_(part.offset)


def _quantise(source: TensorSource, part: SourcePart) -> StoredWeight:
    stored = _stored(source, part)
    if stored is not None:  # allocating all of it in float32 would take longer than rounding
        quantised = requantise_int8(stored)
        source.release(part)
        return quantised
    matrix = torch.empty(part.shape)
    _fill(source, part, matrix)
    return quantise_int8(matrix)


STORED_MODULES: dict[type[nn.Module], type[StoredMatrix]] = {
    Linear: StoredLinear,
    nn.Embedding: StoredEmbedding,
    Softmax: StoredSoftmax,
}
"""Module with a float32 weight → module whose weight keeps its stored format."""


def storable_weights(model: nn.Module) -> set[str]:
    """The names of the weights that can keep their stored format."""
    return {f"{name}.weight" for name, module in model.named_modules() if type(module) in STORED_MODULES}


def install_stored_weights(model: nn.Module, stored: Mapping[str, StackedWeights]) -> None:
    """Replace the modules of these weights by their stored counterparts; the model is then frozen.

    Modules that share an embedding (a tied head, an encoder) get its replacement.
    """
    replaced: dict[nn.Module, StoredMatrix] = {}
    for name, parts in stored.items():
        path = name.removesuffix(".weight")
        module: Any = model.get_submodule(path)
        bias = None if isinstance(module, nn.Embedding) else module.bias
        replaced[module] = STORED_MODULES[type(module)](parts, bias)
        model.set_submodule(path, replaced[module])
    for path, module in list(model.named_modules()):
        if not isinstance(module, TiedSoftmax | TransformerEncoder | RNNEncoder):
            continue
        embed = replaced.get(module._embed[0])
        if embed is None:
            continue
        if isinstance(module, TiedSoftmax):
            model.set_submodule(path, TiedStoredSoftmax(embed, module.bias))
        else:
            module._embed = (embed,)  # type: ignore[assignment]
    if stored:
        model.requires_grad_(False)


MEMORY_ADVICE: dict[WeightFormat, str] = {
    "float32": 'weights="stored" maps them from their file, weights="int8" takes a quarter',
    "int8": 'weights="stored" maps them from their file',
    "stored": "take a smaller model, or one with fewer bits per weight",
}


@contextmanager
def memory_errors(name: str, weights: WeightFormat) -> Iterator[None]:
    """Turn any out-of-memory error (of Python, torch or the system) into a MemoryError with advice."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryError(
            f"{name}: out of memory while loading with weights={weights!r}: {MEMORY_ADVICE[weights]}"
        ) from error


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    parsed = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if not isinstance(parsed, torch.dtype) or parsed not in DTYPES.values():
        raise ValueError(
            f"dtype {dtype!r:.40} is unknown: choose from {', '.join(DTYPES)}, or the same from torch"
        )
    return parsed


def parse_device(name: str | torch.device) -> torch.device:
    """The torch device of that name, after allocating one number on it."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {name!r} is unknown: {_known_devices()}") from error
    try:
        torch.empty(1, device=device)
    except Exception as error:  # each kind of device raises other errors
        raise ValueError(f"device {str(device)!r} cannot be used here: {_known_devices()}") from error
    return device


def _known_devices() -> str:
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    gpus += ["mps"] if torch.backends.mps.is_available() else []
    return f"choose from {', '.join(['cpu', *gpus])}" if gpus else "this build of torch supports only 'cpu'"
