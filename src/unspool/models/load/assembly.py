"""From the tensors of a file to a model: check every name and shape, fill our tensors, build around them."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from unspool.models.load.dialect import Dialect, Target, TensorPart, plan

if TYPE_CHECKING:
    from unspool.models.transformer_lm import TransformerConfig
    from unspool.protocols import Text


M = TypeVar("M", bound=nn.Module, covariant=True)


class Shape(Protocol[M]):
    """The configuration of a kind of model."""

    @property
    def vocab_size(self) -> int:
        """How many tokens the model knows."""
        ...

    def build(self, text: Text | None = None) -> M:
        """A model of this shape."""
        ...


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

    def fill(self, piece: TensorPart, out: Tensor) -> None:
        """Write the piece's numbers into `out`, or fail with a ValueError if one is not finite."""
        ...


def assemble(
    source: Source, config: TransformerConfig, dialect: Dialect, *, threads: int = 1
) -> dict[str, Tensor]:
    """Our state dict in float32. Nothing is allocated before every name and shape has been found right."""
    checked = _checked(source, plan(config, dialect), dialect.ignored)
    state = {target.name: torch.empty(target.shape) for target in checked}
    jobs: list[tuple[TensorPart, Tensor]] = []
    for target in checked:
        rows = torch.split(state[target.name], [piece.shape[0] for piece in target.pieces])
        jobs += zip(target.pieces, rows, strict=True)
    jobs.sort(
        key=lambda job: -job[1].numel()
    )  # the largest first: no thread is left alone with it at the end
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(_fill, source, *job) for job in jobs]:
            done.result()
    return state


def build(config: Shape[M], state: Mapping[str, Tensor], text: Text | None, label: str) -> M:
    """A model around tensors that exist already: none is copied, none is drawn at random first."""
    if text is not None and text.vocab_size > config.vocab_size:
        raise ValueError(
            f"{label}: the tokenizer knows {text.vocab_size} tokens, the model only {config.vocab_size}; "
            "it belongs to another model: put the right tokenizer files beside the weights"
        )
    _check_depth(config, state, label)
    with named(label), torch.device("meta"), _Uninitialised():
        try:
            model = config.build(text)
        except RuntimeError as error:  # of sizes whose product is beyond every number of bytes
            raise ValueError(f"no model of this shape can be built: {error}") from error
    _compare(model, state, label)
    model.load_state_dict(state, assign=True)
    return model.eval()


@contextmanager
def named(label: str) -> Iterator[None]:
    """What is wrong with a shape, with the file that asked for it."""
    try:
        yield
    except ValueError as error:
        if str(error).startswith(label):
            raise
        raise ValueError(f"{label}: {error}") from error


class _Uninitialised(TorchFunctionMode):
    """Skips `torch.nn.init`, whose functions import torch's compiler (seconds) on the meta device."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        arguments = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            return (*args, *arguments.values())[0]
        return func(*args, **arguments)


def _checked(source: Source, targets: Iterable[Target], ignored: str) -> list[Target]:
    checked, used = [], set()
    for target in targets:
        for piece in target.pieces:
            if piece.source is not None:
                _check(source, piece.source, piece.stored_shape)
                used.add(piece.source)
        checked.append(target)
    extra = sorted(name for name in source.shapes if name not in used and not re.fullmatch(ignored, name))
    if extra:
        raise ValueError(
            f"{source.label}: tensors without a place in the model that the configuration describes: "
            f"{_some(extra)}; the file holds another kind of model"
        )
    return checked


def _check(source: Source, name: str, expected: tuple[int, ...]) -> None:
    found = source.shapes.get(name)
    if found is None:
        near = difflib.get_close_matches(name, source.shapes, n=3)
        hint = f"; there are {_some(near)}" if near else ""
        raise ValueError(f"{source.label}: tensor {name!r} of shape {list(expected)} is missing{hint}")
    if found != expected:
        raise ValueError(
            f"{source.label}: tensor {name!r} has shape {list(found)}; "
            f"the configuration asks for {list(expected)}"
        )


def _fill(source: Source, piece: TensorPart, out: Tensor) -> None:
    if piece.source is None:
        out.zero_()
    else:
        source.fill(piece, out)


def _check_depth(config: Any, state: Mapping[str, Tensor], label: str) -> None:
    """Refuse more layers than there are tensors, for they would all be built before one is missed."""
    for it in dataclasses.fields(config):
        value = getattr(config, it.name)
        if dataclasses.is_dataclass(value):
            _check_depth(value, state, label)
        elif it.name.endswith("layers") and value > max(1, len(state)):
            raise ValueError(
                f"{label}: {it.name}={value}, but the file holds {len(state)} tensors: "
                "the configuration belongs to another model"
            )


def _compare(model: nn.Module, state: Mapping[str, Tensor], label: str) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if missing := sorted(expected.keys() - found.keys()):
        raise ValueError(f"{label}: tensors are missing: {_some(missing)}")
    if extra := sorted(found.keys() - expected.keys()):
        raise ValueError(f"{label}: tensors without a place in the model: {_some(extra)}")
    for name, shape in expected.items():
        if found[name] != shape:
            raise ValueError(
                f"{label}: tensor {name!r} has shape {list(found[name])}; "
                f"the configuration asks for {list(shape)}"
            )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
