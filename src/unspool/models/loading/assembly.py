"""Build a model from the tensors of a file: check every name and shape, then read and assign the weights."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from unspool.errors import escape_name
from unspool.interfaces import TokenizerLike
from unspool.models.loading.weight_layout import (
    SourcePart,
    TargetTensor,
    TensorSource,
    WeightLayout,
    plan_tensors,
)
from unspool.models.loading.weights import WeightFormat, install_stored_weights, read_weight, storable_weights

MAX_COPIED_WEIGHTS = 2**26
"""Largest model whose float32 weights are copied: a quarter of a gigabyte. In large pages, unlike in a map of
the file, a step of a small model is a seventh faster."""


def build_model(
    config: Any,
    source: TensorSource,
    layout: WeightLayout | None = None,
    tokenizer: TokenizerLike | None = None,
    weights: WeightFormat = "float32",
) -> Any:
    """A model with the tensors of a file, which has our names and shapes if there is no `layout`.

    All names and shapes are checked before memory is allocated for a tensor.
    """
    model = _build_on_meta(config, source, tokenizer)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if layout is None:
        targets = [TargetTensor(name, shape, (SourcePart(name, shape),)) for name, shape in shapes.items()]
    else:
        targets = plan_tensors(config, shapes, layout)
    _check_targets(source, targets, "(?!)" if layout is None else layout.ignored)
    matrices = storable_weights(model)
    is_mapped = weights != "float32" or sum(map(math.prod, shapes.values())) > MAX_COPIED_WEIGHTS
    state = {}
    for target in targets:
        is_matrix = target.name in matrices
        state[target.name] = read_weight(source, target, weights, is_matrix=is_matrix, is_mapped=is_mapped)
    install_stored_weights(model, {name: value for name, value in state.items() if isinstance(value, tuple)})
    plain = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    model.load_state_dict(plain, assign=True, strict=False)
    return model.eval()


def _build_on_meta(config: Any, source: TensorSource, tokenizer: TokenizerLike | None) -> Any:
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{source.label}: the tokenizer has {tokenizer.vocab_size} tokens, the model only "
            f"{config.vocab_size}: put the model's own tokenizer files beside the weights"
        )
    _check_layer_count(config, source)
    with errors_with_label(source.label), torch.device("meta"), _SkipInit():
        try:
            return config.build(tokenizer)
        except RuntimeError as error:  # the product of the sizes overflows
            raise ValueError(f"no model of this shape can be built: {error}") from error


@contextmanager
def errors_with_label(label: str) -> Iterator[None]:
    """Prefix ValueErrors with the file that caused them."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(label):
            raise
        raise ValueError(f"{label}: {error}") from error


class _SkipInit(TorchFunctionMode):
    """Skips `torch.nn.init`, which imports torch's compiler (seconds) on the meta device."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        arguments = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return (*args, *arguments.values())[0]
        return func(*args, **arguments)


def _check_layer_count(config: Any, source: TensorSource) -> None:
    """Reject more layers than tensors before building them all."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            _check_layer_count(value, source)
        elif field.name.endswith("layers") and isinstance(value, int) and value > max(1, len(source.shapes)):
            raise ValueError(
                f"{source.label}: {field.name}={value}, but the file holds {len(source.shapes)} tensors: "
                "the configuration belongs to another model"
            )


def _check_targets(source: TensorSource, targets: Sequence[TargetTensor], ignored: str) -> None:
    parts = {part.source: part for target in targets for part in target.parts}
    for name, part in parts.items():
        shape, expected = source.shapes.get(name), list(part.stored_shape)
        if shape is None:
            near = difflib.get_close_matches(name, source.shapes, n=3)
            hint = f"; similar names: {list_names(near)}" if near else ""
            raise ValueError(f"{source.label}: tensor {name!r} of shape {expected} is missing{hint}")
        if list(shape) != expected:
            raise ValueError(
                f"{source.label}: tensor {name!r} has shape {list(shape)}; the configuration asks for "
                f"{expected}"
            )
    extra = sorted(name for name in source.shapes if name not in parts and not re.fullmatch(ignored, name))
    if extra:
        raise ValueError(
            f"{source.label}: unexpected tensors {list_names(extra)}: the file holds another kind of model "
            "than its configuration describes"
        )


def list_names(names: list[str]) -> str:
    """The first five names, and the number of the others."""
    return ", ".join(map(escape_name, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
