"""Output layers (heads): hidden vectors → log-probabilities, and their losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unspool.heads.kerbs import KerbsHeadConfig
from unspool.heads.nonlinear import CappedHeadConfig, MixtureHeadConfig, SigsoftmaxHeadConfig
from unspool.heads.softmax import (
    BilinearHeadConfig,
    OutputMatrixConfig,
    SoftmaxHeadConfig,
    TemperedHeadConfig,
)


class PluginHeadConfig:
    """Base class of the settings of heads in other packages: `kind = "my_package:MyHead"`.

    A subclass is a frozen dataclass; its `build(width, vocab_size, embed)` returns a module that implements
    `interfaces.Head` and `interfaces.LossHead`.
    """

    def build(self, width: int, vocab_size: int, embed: Any = None) -> Any:
        """Build the head for hidden vectors of this width; `embed` is the model's embedding."""
        raise NotImplementedError


HeadConfig = (
    BilinearHeadConfig
    | CappedHeadConfig
    | KerbsHeadConfig
    | MixtureHeadConfig
    | PluginHeadConfig
    | SigsoftmaxHeadConfig
    | SoftmaxHeadConfig
    | TemperedHeadConfig
)
"""The settings of any head: those in HEADS, or those of a plugin."""

HEADS: dict[str, type[HeadConfig]] = {
    "softmax": SoftmaxHeadConfig,
    "tempered": TemperedHeadConfig,
    "bilinear": BilinearHeadConfig,
    "mixture": MixtureHeadConfig,
    "sigsoftmax": SigsoftmaxHeadConfig,
    "kerbs": KerbsHeadConfig,
    "capped": CappedHeadConfig,
}


def resolve_head(head: HeadConfig | None, tied: bool) -> HeadConfig:
    """The settings of a model's head, a softmax by default; `tied` replaces a `head.tied` of None."""
    if head is None:
        return SoftmaxHeadConfig(tied=tied)
    if not isinstance(head, OutputMatrixConfig) or head.tied is not None:
        return head
    # Word vectors of another width cannot be the embedding.
    has_inner_width = isinstance(head, BilinearHeadConfig) and head.inner_width is not None
    return replace(head, tied=tied and not has_inner_width)
