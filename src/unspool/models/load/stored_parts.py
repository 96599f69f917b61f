"""Parts of a model that stay as they are stored, put in the place of those with float32 weights.

    Linear → StoredLinear,   Embedding → StoredEmbedding,   Softmax → StoredSoftmax

Whoever shares an embedding (a tied head, an encoder) is given the one that has taken its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from unspool.heads.softmax import Softmax, TiedSoftmax
from unspool.heads.stored_softmax import StoredSoftmax, TiedStoredSoftmax
from unspool.models.encoders import RNNEncoder, TransformerEncoder
from unspool.models.load.kept_weights import Pieces
from unspool.nn.linear import Linear
from unspool.nn.stored.matrix import StoredMatrix
from unspool.nn.stored.stored_linear import StoredEmbedding, StoredLinear

STORED: dict[type[nn.Module], type[StoredMatrix]] = {
    Linear: StoredLinear,
    nn.Embedding: StoredEmbedding,
    Softmax: StoredSoftmax,
}
"""A part with a weight → the same, whose weight stays as it is stored."""


def storable(model: nn.Module) -> set[str]:
    """The names of the weights that can stay as they are stored."""
    return {f"{name}.weight" for name, part in model.named_modules() if type(part) in STORED}


def put_stored(model: nn.Module, stored: Mapping[str, Pieces]) -> None:
    """Give the weights of these names to parts that leave them as they are. Nothing of it learns anymore."""
    shared: dict[nn.Module, StoredMatrix] = {}
    for name, pieces in stored.items():
        module = name.removesuffix(".weight")
        part: Any = model.get_submodule(module)
        bias = None if isinstance(part, nn.Embedding) else part.bias
        shared[part] = STORED[type(part)](pieces, bias)
        _put(model, module, shared[part])
    for name, part in list(model.named_modules()):
        if (
            not isinstance(part, TiedSoftmax | TransformerEncoder | RNNEncoder)
            or part._embed[0] not in shared
        ):
            continue
        embed = shared[part._embed[0]]
        if isinstance(part, TiedSoftmax):
            _put(model, name, TiedStoredSoftmax(embed, part.bias))
        else:
            part._embed = (embed,)  # type: ignore[assignment]
    if stored:
        model.requires_grad_(False)


def _put(model: nn.Module, name: str, part: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, part)
