"""The same small network at every position.

    plain         W₂ f(W₁ x)                     Vaswani et al. 2017, eq. 2 (papers.bib: vaswani2017attention)
                  f: ReLU, GELU or SiLU, x · σ(x)
    SwiGLU        W₂ (silu(W_gate x) ⊙ W_up x)   Shazeer 2020, eq. 6 (papers.bib: shazeer2020glu)
    GeGLU         W₂ (gelu(W_gate x) ⊙ W_up x)   Shazeer 2020, eq. 6 (papers.bib: shazeer2020glu)

With inner width 4D and no biases the plain form has 8D² weights. `up` holds W₁, or W_gate above W_up, so
that one product serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from unspool.nn.direct_call import DirectCall
from unspool.nn.linear import Linear


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) ⊙ up, where x = [gate; up]."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


def geglu(x: Tensor) -> Tensor:
    """gelu(gate) ⊙ up, where x = [gate; up] and gelu is the one of tanh."""
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "geglu": geglu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "swiglu": swiglu,
}
GATED = frozenset({"geglu", "swiglu"})


class FeedForward(DirectCall):
    """Width D → inner width → D."""

    def __init__(self, width: int, inner_width: int, activation: str, bias: bool) -> None:
        super().__init__()
        self.up = Linear(width, inner_width * (2 if activation in GATED else 1), bias)
        self.down = Linear(inner_width, width, bias)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        out: Tensor = self.down(self.activation(self.up(x)))
        return out
