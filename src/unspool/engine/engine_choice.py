"""What runs a model's steps: torch, or one compiled call a token (`nn.compiled`).

    torch      always there: gradients, GPUs, half precision, hooks
    compiled   float32 or stored weights on a CPU, with numba (`pip install numba`): faster, with one
               copy of the weights, and the same log-probabilities to the bit in any batch

A model takes the compiled step where it can, unless it is told which to take. A text is finished by the
engine that began it.
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
PLAIN_HEADS = (Softmax, TiedSoftmax, StoredSoftmax, TiedStoredSoftmax)

WIDEST = 65536
"""Inputs of a packed matrix, at most (`kernels.stack_memory`)."""

Blueprint = Mapping[str, Any]
"""The class of every part and the shape of every weight, by name."""


def known_engine(name: str | None) -> EngineName | None:
    """The engine of that name; None leaves the choice to the model."""
    found = find_word(name, ENGINES)
    if found is None and name is not None:
        raise ValueError(
            f"engine {name!r:.40} is unknown: choose from {', '.join(ENGINES)}, or None for the best"
        )
    return found


def blueprint(model: nn.Module) -> Blueprint:
    """What a model is made of, but for its head: a compiled step computes that, and nothing else."""
    parts = {name: type(part) for name, part in model.named_modules() if _body(name)}
    weights = {name: tuple(weight.shape) for name, weight in model.named_parameters() if _body(name)}
    return parts | weights


def _body(name: str) -> bool:
    return not f"{name}.".startswith("head.")


def stored_shape(part: nn.Module) -> tuple[int, int]:
    """(outputs, inputs) of a matrix that stays as it is stored (`nn.stored`); zeros of any other part."""
    return (part.rows, part.columns) if isinstance(part, StoredMatrix) else (0, 0)


def plain_words(model: SequenceModel) -> Any:
    """What has the words' vectors, where the head is a softmax of scores with them, or of bent ones.

    A compiled step computes that; of any other head this is None.
    """
    words = model.head.words if type(model.head) is Capped else model.head
    return words if type(words) in PLAIN_HEADS else None


def plain_head(model: SequenceModel) -> bool:
    """Whether the head is one that a compiled step computes."""
    return plain_words(model) is not None


def logit_cap(model: SequenceModel) -> float:
    """What the head's scores are bent to stay below; 0 where they are not."""
    return float(model.head.cap) if type(model.head) is Capped else 0.0


def obstacle(model: SequenceModel) -> str | None:
    """Why this model's steps cannot be compiled, as it is now; None where they can."""
    missing = compiler_obstacle()
    if missing is not None:
        return missing
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    return _changed_part(model) or _changed_weight(model)


def _changed_part(model: SequenceModel) -> str | None:
    built = model.built
    if not built:
        return f"{type(model).__name__} has no compiled step"
    for name, part in model.named_modules():
        height, width = stored_shape(part)
        if height and (height, width) != built.get(f"{name}.weight", (height, width)):
            return f"{name} has the shape {(height, width)}, where the model's says {built[f'{name}.weight']}"
        if width > WIDEST:
            return f"{name} has {width} inputs, and there is memory for {WIDEST} packed ones"
        if not height and _body(name) and type(part) is not built.get(name):
            return f"{name or 'the model'} is a {type(part).__name__}, which has no kernel"
        if part._forward_hooks or part._forward_pre_hooks:
            return f"{name or 'the model'} has hooks, which would not be called"
        if isinstance(part, nn.Dropout) and part.training and part.p > 0 and not model.training:
            return f"{name} is in train mode"
    return None


def _changed_weight(model: SequenceModel) -> str | None:
    built = dict(model.built)
    if plain_head(model):
        matrix = (model.vocab_size, model.embed.embedding_dim)
        for name in ("head", "head.words"):
            built |= {f"{name}.weight": matrix, f"{name}.bias": matrix[:1]}
    for name, weight in model.named_parameters():
        if weight.device.type != "cpu" or weight.dtype != torch.float32:
            return f"{name} is {str(weight.dtype).removeprefix('torch.')} on {weight.device}"
        if type(weight) is not nn.Parameter or not weight.is_contiguous():
            return f"{name} does not lie in memory as plain rows"
        expected = built.get(name)
        if tuple(weight.shape) != expected and (_body(name) or expected is not None):
            return f"{name} has the shape {tuple(weight.shape)}, where the model's says {expected}"
    return None


def engine_of(model: SequenceModel, forced: EngineName | None) -> EngineName:
    """What a text that begins now is read and written with."""
    if forced == "torch":
        return "torch"
    found = obstacle(model)
    if found is None:
        return "compiled"
    if forced is None:
        return "torch"
    raise ValueError(f"this model cannot run compiled: {found}; choose engine='torch' or None")
