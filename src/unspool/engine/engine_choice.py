"""The choice of the engine that runs a model's steps.

    torch      always available: gradients, GPUs, half precision, hooks
    compiled   one compiled call per token (`transformer_engine`): float32 or stored weights on a CPU, with
               numba (`pip install numba`); faster, one copy of the weights, and log-probabilities that are
               bit-identical in any batch

A model uses the compiled engine if it can, unless its `engine` is set. A text that has started stays with its
engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from unspool.config import find_word
from unspool.engine import compiler_obstacle
from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import StoredMatrix
from unspool.heads.elementwise import Capped
from unspool.heads.softmax import Softmax, TiedSoftmax

if TYPE_CHECKING:
    from unspool.models.sequence_model import SequenceModel

EngineName = Literal["torch", "compiled"]
ENGINES: tuple[EngineName, ...] = ("torch", "compiled")
COMPILED_HEADS = (Softmax, TiedSoftmax, StoredSoftmax, TiedStoredSoftmax)

MAX_INPUTS = 65536
"""Inputs of a packed matrix, at most (`memory.MAX_STACK_FLOATS`)."""

ModuleSpec = Mapping[str, Any]
"""The class of every module and the shape of every parameter outside the head, by name."""


def parse_engine(name: str | None) -> EngineName | None:
    """Check the name of an engine; None leaves the choice to the model."""
    engine = find_word(name, ENGINES)
    if engine is None and name is not None:
        raise ValueError(
            f"engine {name!r:.40} is unknown: choose from {', '.join(ENGINES)}, or None for the best"
        )
    return engine


def module_spec(model: nn.Module) -> ModuleSpec:
    """The modules and parameters for which a compiled step is correct: the model's when it was built."""
    parts = {name: type(part) for name, part in model.named_modules() if _is_outside_head(name)}
    weights = {
        name: tuple(weight.shape) for name, weight in model.named_parameters() if _is_outside_head(name)
    }
    return parts | weights


def _is_outside_head(name: str) -> bool:
    return not f"{name}.".startswith("head.")


def stored_shape(part: nn.Module) -> tuple[int, int]:
    """(outputs, inputs) of a stored matrix (`stored_weights`); zeros for other modules."""
    return (part.rows, part.columns) if isinstance(part, StoredMatrix) else (0, 0)


def softmax_head(model: SequenceModel) -> Any:
    """The (soft-capped) softmax head, which the compiled step computes; None for other heads."""
    words = model.head.words if type(model.head) is Capped else model.head
    return words if type(words) in COMPILED_HEADS else None


def has_compiled_head(model: SequenceModel) -> bool:
    """True if the compiled step computes the head."""
    return softmax_head(model) is not None


def logit_cap(model: SequenceModel) -> float:
    """The soft cap of the head's logits; 0 if there is none."""
    return float(model.head.cap) if type(model.head) is Capped else 0.0


def engine_obstacle(model: SequenceModel) -> str | None:
    """The reason why this model cannot run compiled in its present state; None if it can."""
    reason = compiler_obstacle()
    if reason is not None:
        return reason
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    return _module_obstacle(model) or _weight_obstacle(model)


def _module_obstacle(model: SequenceModel) -> str | None:
    built = model.built
    if not built:
        return f"{type(model).__name__} has no compiled step"
    for name, part in model.named_modules():
        height, width = stored_shape(part)
        if height and (height, width) != built.get(f"{name}.weight", (height, width)):
            return f"{name} has shape {(height, width)}, expected {built[f'{name}.weight']}"
        if width > MAX_INPUTS:
            return f"{name} has {width} inputs, more than the {MAX_INPUTS} of packed matrices"
        if not height and _is_outside_head(name) and type(part) is not built.get(name):
            return f"{name or 'the model'} is a {type(part).__name__}, which is not compiled"
        if part._forward_hooks or part._forward_pre_hooks:
            return f"{name or 'the model'} has hooks, which compiled code does not call"
        if isinstance(part, nn.Dropout) and part.training and part.p > 0 and not model.training:
            return f"{name} is in train mode"
    return None


def _weight_obstacle(model: SequenceModel) -> str | None:
    built = dict(model.built)
    if has_compiled_head(model):
        matrix = (model.vocab_size, model.embed.embedding_dim)
        for name in ("head", "head.words"):
            built |= {f"{name}.weight": matrix, f"{name}.bias": matrix[:1]}
    for name, weight in model.named_parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            return f"{name} is {str(weight.dtype).removeprefix('torch.')} on {weight.device}"
        if type(weight) is not nn.Parameter or not weight.is_contiguous():
            return f"{name} is not contiguous"
        expected = built.get(name)
        if tuple(weight.shape) != expected and (_is_outside_head(name) or expected is not None):
            return f"{name} has shape {tuple(weight.shape)}, expected {expected}"
    return None


def choose_engine(model: SequenceModel, forced: EngineName | None) -> EngineName:
    """The engine for a new text."""
    if forced == "torch":
        return "torch"
    reason = engine_obstacle(model)
    if reason is None:
        return "compiled"
    if forced is None:
        return "torch"
    raise ValueError(f"this model cannot run compiled: {reason}; choose engine='torch' or None")
