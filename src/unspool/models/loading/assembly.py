"""Build a model from the tensors of a file: check every name and shape, then read and assign the weights."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unspool.errors import escape_name
from unspool.models.loading.weight_layout import TargetTensor
from unspool.models.loading.weights import (
    READERS,
    StackedWeights,
    StateDict,
    TensorSource,
    WeightFormat,
    install_stored_weights,
)

if TYPE_CHECKING:
    from unspool.interfaces import TokenizerLike

M = TypeVar("M", bound=nn.Module, covariant=True)
MetaModel = TypeVar("MetaModel", bound=nn.Module)


class ModelConfig(Protocol[M]):
    """The configuration of a kind of model."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        ...

    def build(self, text: TokenizerLike | None = None) -> M:
        """Create a model of this configuration."""
        ...


def read_tensors(
    source: TensorSource, targets: Iterable[TargetTensor], ignored: str, weights: WeightFormat
) -> StateDict:
    """Our state dict. All names and shapes are checked before memory is allocated."""
    checked = _check_targets(source, targets, ignored)
    return {target.name: READERS[weights](source, target) for target in checked}


def build_model(
    config: ModelConfig[M],
    state: Mapping[str, Tensor | StackedWeights],
    tokenizer: TokenizerLike | None,
    label: str,
) -> M:
    """A model around existing tensors, without copying them or initialising weights."""
    return assign_weights(build_on_meta(config, tokenizer, label, len(state)), state, label)


def build_on_meta(
    config: ModelConfig[M], tokenizer: TokenizerLike | None, label: str, tensor_count: int
) -> M:
    """A model on the meta device, for a file of `tensor_count` tensors."""
    if tokenizer is not None and tokenizer.vocab_size > config.vocab_size:
        raise ValueError(
            f"{label}: the tokenizer has {tokenizer.vocab_size} tokens, the model only {config.vocab_size}: "
            "put the model's own tokenizer files beside the weights"
        )
    _check_layer_count(config, tensor_count, label)
    with errors_with_label(label), torch.device("meta"), _SkipInit():
        try:
            return config.build(tokenizer)
        except RuntimeError as error:  # the product of the sizes overflows
            raise ValueError(f"no model of this shape can be built: {error}") from error


def assign_weights(model: MetaModel, state: Mapping[str, Tensor | StackedWeights], label: str) -> MetaModel:
    """Give a meta-device model its tensors after checking names and shapes."""
    check_shapes(model, {name: _shape(value) for name, value in state.items()}, label)
    install_stored_weights(model, {name: value for name, value in state.items() if isinstance(value, tuple)})
    plain = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    model.load_state_dict(plain, assign=True, strict=False)
    return model.eval()


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


def _check_targets(source: TensorSource, targets: Iterable[TargetTensor], ignored: str) -> list[TargetTensor]:
    checked, used = [], set()
    for target in targets:
        for part in target.parts:
            if part.source is not None:
                _check_tensor(source, part.source, part.stored_shape)
                used.add(part.source)
        checked.append(target)
    extra = sorted(name for name in source.shapes if name not in used and not re.fullmatch(ignored, name))
    if extra:
        raise ValueError(
            f"{source.label}: unexpected tensors {_list_names(extra)}: the file holds another kind of model "
            "than its configuration describes"
        )
    return checked


def _check_tensor(source: TensorSource, name: str, expected: tuple[int, ...]) -> None:
    shape = source.shapes.get(name)
    if shape is None:
        near = difflib.get_close_matches(name, source.shapes, n=3)
        hint = f"; similar names: {_list_names(near)}" if near else ""
        raise ValueError(f"{source.label}: tensor {name!r} of shape {list(expected)} is missing{hint}")
    _check_shape(name, shape, expected, source.label)


def _check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...], label: str) -> None:
    if shape != expected:
        raise ValueError(
            f"{label}: tensor {name!r} has shape {list(shape)}; the configuration asks for {list(expected)}"
        )


def _check_layer_count(config: Any, tensor_count: int, label: str) -> None:
    """Reject more layers than tensors before building them all."""
    for it in dataclasses.fields(config):
        value = getattr(config, it.name)
        if dataclasses.is_dataclass(value):
            _check_layer_count(value, tensor_count, label)
        elif it.name.endswith("layers") and isinstance(value, int) and value > max(1, tensor_count):
            raise ValueError(
                f"{label}: {it.name}={value}, but the file holds {tensor_count} tensors: "
                "the configuration belongs to another model"
            )


def check_shapes(model: nn.Module, shapes: Mapping[str, tuple[int, ...]], label: str) -> None:
    """Reject tensors whose names or shapes differ from the model's."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if missing := sorted(expected.keys() - shapes.keys()):
        raise ValueError(f"{label}: missing tensors {_list_names(missing)}")
    if extra := sorted(shapes.keys() - expected.keys()):
        raise ValueError(f"{label}: unexpected tensors {_list_names(extra)}")
    for name, shape in expected.items():
        _check_shape(name, shapes[name], shape, label)


def _shape(value: Tensor | StackedWeights) -> tuple[int, ...]:
    if isinstance(value, Tensor):
        return tuple(value.shape)
    return sum(part.shape[0] for part in value), value[0].shape[1]


def _list_names(names: list[str]) -> str:
    return ", ".join(map(escape_name, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
