"""From the tensors of a file to a model: check every name and shape, fill our tensors, build around them."""

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
from unspool.models.loading.weight_layout import TargetTensor, WeightLayout, plan_tensors
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
    from unspool.models.transformer_lm import TransformerConfig

M = TypeVar("M", bound=nn.Module, covariant=True)
Outlined = TypeVar("Outlined", bound=nn.Module)


class ModelConfig(Protocol[M]):
    """The configuration of a kind of model."""

    @property
    def vocab_size(self) -> int:
        """How many tokens the model knows."""
        ...

    def build(self, text: TokenizerLike | None = None) -> M:
        """A model of this shape."""
        ...


def read_weights(
    source: TensorSource, config: TransformerConfig, dialect: WeightLayout, weights: WeightFormat = "float32"
) -> StateDict:
    """Our state dict. Nothing is allocated before every name and shape has been found right."""
    return read_tensors(source, plan_tensors(config, dialect), dialect.ignored, weights)


def read_tensors(
    source: TensorSource, targets: Iterable[TargetTensor], ignored: str, weights: WeightFormat
) -> StateDict:
    """The same for tensors that are planned already."""
    return {
        target.name: READERS[weights](source, target) for target in _check_targets(source, targets, ignored)
    }


def build_model(
    config: ModelConfig[M],
    state: Mapping[str, Tensor | StackedWeights],
    text: TokenizerLike | None,
    label: str,
) -> M:
    """A model around tensors that exist already: none is copied, none is drawn at random first."""
    return assign_weights(build_on_meta(config, text, label, len(state)), state, label)


def build_on_meta(config: ModelConfig[M], text: TokenizerLike | None, label: str, tensors: int) -> M:
    """A model of this shape without any numbers, to be made of so many tensors."""
    if text is not None and text.vocab_size > config.vocab_size:
        raise ValueError(
            f"{label}: the tokenizer knows {text.vocab_size} tokens, the model only {config.vocab_size}; "
            "it belongs to another model: put the right tokenizer files beside the weights"
        )
    _check_depth(config, tensors, label)
    with errors_with_label(label), torch.device("meta"), _SkipInit():
        try:
            return config.build(text)
        except RuntimeError as error:  # of sizes whose product is beyond every number of bytes
            raise ValueError(f"no model of this shape can be built: {error}") from error


def assign_weights(model: Outlined, state: Mapping[str, Tensor | StackedWeights], label: str) -> Outlined:
    """Give a model without numbers its tensors, after a look at their names and shapes."""
    check_shapes(model, {name: _shape(kept) for name, kept in state.items()}, label)
    install_stored_weights(model, {name: kept for name, kept in state.items() if isinstance(kept, tuple)})
    plain = {name: kept for name, kept in state.items() if isinstance(kept, Tensor)}
    model.load_state_dict(plain, assign=True, strict=False)
    return model.eval()


@contextmanager
def errors_with_label(label: str) -> Iterator[None]:
    """What is wrong with a shape, with the file that asked for it."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(label):
            raise
        raise ValueError(f"{label}: {error}") from error


class _SkipInit(TorchFunctionMode):
    """Skips `torch.nn.init`, whose functions import torch's compiler (seconds) on the meta device."""

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
        for piece in target.pieces:
            if piece.source is not None:
                _check_tensor(source, piece.source, piece.stored_shape)
                used.add(piece.source)
        checked.append(target)
    extra = sorted(name for name in source.shapes if name not in used and not re.fullmatch(ignored, name))
    if extra:
        raise ValueError(
            f"{source.label}: tensors without a place in the model that the configuration describes: "
            f"{_list_names(extra)}; the file holds another kind of model"
        )
    return checked


def _check_tensor(source: TensorSource, name: str, expected: tuple[int, ...]) -> None:
    found = source.shapes.get(name)
    if found is None:
        near = difflib.get_close_matches(name, source.shapes, n=3)
        hint = f"; there are {_list_names(near)}" if near else ""
        raise ValueError(f"{source.label}: tensor {name!r} of shape {list(expected)} is missing{hint}")
    if found != expected:
        raise ValueError(
            f"{source.label}: tensor {name!r} has shape {list(found)}; "
            f"the configuration asks for {list(expected)}"
        )


def _check_depth(config: Any, tensors: int, label: str) -> None:
    """Refuse more layers than there are tensors, for they would all be built before one is missed."""
    for it in dataclasses.fields(config):
        value = getattr(config, it.name)
        if dataclasses.is_dataclass(value):
            _check_depth(value, tensors, label)
        elif it.name.endswith("layers") and isinstance(value, int) and value > max(1, tensors):
            raise ValueError(
                f"{label}: {it.name}={value}, but the file holds {tensors} tensors: "
                "the configuration belongs to another model"
            )


def check_shapes(model: nn.Module, found: Mapping[str, tuple[int, ...]], label: str) -> None:
    """Refuse tensors of other names or shapes than the model's."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if missing := sorted(expected.keys() - found.keys()):
        raise ValueError(f"{label}: tensors are missing: {_list_names(missing)}")
    if extra := sorted(found.keys() - expected.keys()):
        raise ValueError(f"{label}: tensors without a place in the model: {_list_names(extra)}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise ValueError(
                f"{label}: tensor {name!r} has shape {list(found[name])}; "
                f"the configuration asks for {list(shape)}"
            )


def _shape(kept: Tensor | StackedWeights) -> tuple[int, ...]:
    if isinstance(kept, Tensor):
        return tuple(kept.shape)
    return sum(piece.shape[0] for piece in kept), kept[0].shape[1]


def _list_names(names: list[str]) -> str:
    return ", ".join(map(escape_name, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
