"""The choice of the engine that runs a model's steps.

    torch      always available: gradients, GPUs, half precision, hooks
    compiled   one compiled call per token (`transformer_engine`): float32 or stored weights on a CPU, with
               numba (`pip install numba`); faster, one copy of the weights, and log-probabilities that are
               bit-identical in any batch

A model uses the compiled engine if it can, unless its `engine` is set. A text that has started stays with its
engine. The choice and the compiled engine are made once for a model, and again when a module, a parameter or
a hook of it changes; new values of a parameter change nothing, because the engine reads its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import nn

from unspool.config import find_word
from unspool.engine import compiler_obstacle
from unspool.engine.memory import MAX_STACK_FLOATS
from unspool.engine.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.engine.stored_weights import StoredMatrix
from unspool.heads.nonlinear import Capped
from unspool.heads.softmax import Softmax, TiedSoftmax

if TYPE_CHECKING:
    from unspool.models.sequence_model import SequenceModel

EngineName = Literal["torch", "compiled"]
ENGINES: tuple[EngineName, ...] = ("torch", "compiled")
KVCacheFormat = Literal["float32", "float16"]
KV_CACHES: tuple[KVCacheFormat, ...] = ("float32", "float16")
COMPILED_HEADS = (Softmax, TiedSoftmax, StoredSoftmax, TiedStoredSoftmax)

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


def parse_kv_cache(name: str | None) -> KVCacheFormat | None:
    """Check the name of a format of the KV cache; None leaves the choice to the weights."""
    kv_cache = find_word(name, KV_CACHES)
    if kv_cache is None and name is not None:
        known = ", ".join(KV_CACHES)
        raise ValueError(f"kv_cache {name!r:.40} is unknown: choose from {known}, or None for the best")
    return kv_cache


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


@dataclass
class CachedChoice:
    """What is known about a model as long as its fingerprint is the same."""

    fingerprint: list[Any]
    obstacle: str | None
    engines: tuple[Any, ...] = ()
    """The compiled engines, from the first text on."""


_CHOICES: WeakKeyDictionary[nn.Module, CachedChoice] = WeakKeyDictionary()


def fingerprint(model: SequenceModel) -> list[Any]:
    """The modules, addresses of parameters, hooks and dropouts of a model: all that its engines depend on.

    It takes a tenth of the time of looking for obstacles.
    """
    parts: list[Any] = [model]
    marks: list[Any] = [model.kv_cache]
    for part in parts:
        if part is None:
            continue
        parts.extend(part._modules.values())
        marks.append(type(part))
        for weight in part._parameters.values():
            if weight is not None:
                marks += (weight.data_ptr(), weight.dtype, weight.shape, weight.stride())
        if part._forward_hooks or part._forward_pre_hooks:
            marks.append("hooks")
        if isinstance(part, StoredMatrix):
            marks += [piece.packed.data_ptr() for piece in part.pieces]
        elif isinstance(part, nn.Dropout):
            marks.append(_drops_in_eval(part, model))
    return marks


def _cached_choice(model: SequenceModel) -> CachedChoice:
    marks, cached = fingerprint(model), _CHOICES.get(model)
    if cached is None or cached.fingerprint != marks:
        cached = CachedChoice(marks, _module_obstacle(model) or _weight_obstacle(model))
        _CHOICES[model] = cached
    return cached


def cached_engines(model: SequenceModel, build: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """The compiled engines of a model, built for its first text."""
    cached = _cached_choice(model)
    if not cached.engines:
        cached.engines = build()
    for engine in cached.engines:
        engine.weights.copy_biases()
    return cached.engines


def engine_obstacle(model: SequenceModel) -> str | None:
    """The reason why this model cannot run compiled in its present state; None if it can."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    return compiler_obstacle() or _cached_choice(model).obstacle


def _drops_in_eval(part: nn.Dropout, model: nn.Module) -> bool:
    """True for a dropout that alone is in train mode (Monte Carlo dropout)."""
    return part.training and part.p > 0 and not model.training


def _module_obstacle(model: SequenceModel) -> str | None:
    built = model.built
    if not built:
        return f"{type(model).__name__} has no compiled step"
    for name, part in model.named_modules():
        height, width = stored_shape(part)
        if height and (height, width) != built.get(f"{name}.weight", (height, width)):
            return f"{name} has shape {(height, width)}, expected {built[f'{name}.weight']}"
        if width > MAX_STACK_FLOATS:
            return f"{name} has {width} inputs, more than the {MAX_STACK_FLOATS} of packed matrices"
        if not height and _is_outside_head(name) and type(part) is not built.get(name):
            return f"{name or 'the model'} is a {type(part).__name__}, which is not compiled"
        if part._forward_hooks or part._forward_pre_hooks:
            return f"{name or 'the model'} has hooks, which compiled code does not call"
        if isinstance(part, nn.Dropout) and _drops_in_eval(part, model):
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
