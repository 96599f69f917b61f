"""Output layers: hidden vectors to normalised log-probabilities, and their losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unspool.heads.bilinear import BilinearHeadConfig
from unspool.heads.elementwise import CappedHeadConfig, SigsoftmaxHeadConfig
from unspool.heads.kerbs import KerbsHeadConfig
from unspool.heads.mixture import MixtureHeadConfig
from unspool.heads.softmax import SoftmaxHeadConfig, TemperedHeadConfig


class PluginHeadConfig:
    """Base class of the settings of heads in other packages: `kind = "my_package:MyHead"`.

    A subclass is a frozen dataclass with `build(width, vocab_size, embed)`, which returns a module as
    `interfaces.Head` and `interfaces.LossHead` describe it.
    """

    def build(self, width: int, vocab_size: int, embed: Any = None) -> Any:
        """Return the head that reads hidden vectors of this width; `embed` is the model's embedding."""
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
"""Any of the settings in HEADS."""

HEADS: dict[str, type[HeadConfig]] = {
    "softmax": SoftmaxHeadConfig,
    "tempered": TemperedHeadConfig,
    "bilinear": BilinearHeadConfig,
    "mixture": MixtureHeadConfig,
    "sigsoftmax": SigsoftmaxHeadConfig,
    "kerbs": KerbsHeadConfig,
    "capped": CappedHeadConfig,
}


def chosen_head(head: HeadConfig | None, tied: bool) -> HeadConfig:
    """The head of a model: the plain softmax where none is given, and tied as the model is unless it says."""
    if head is None:
        return SoftmaxHeadConfig(tied=tied)
    if isinstance(head, KerbsHeadConfig | PluginHeadConfig) or head.tied is not None:
        return head
    # Vectors of a width of their own cannot be the embedding: nobody has asked for that.
    own = isinstance(head, BilinearHeadConfig) and head.inner_width is not None
    return replace(head, tied=tied and not own)


__all__ = [
    "HEADS",
    "BilinearHeadConfig",
    "CappedHeadConfig",
    "HeadConfig",
    "KerbsHeadConfig",
    "MixtureHeadConfig",
    "PluginHeadConfig",
    "SigsoftmaxHeadConfig",
    "SoftmaxHeadConfig",
    "TemperedHeadConfig",
    "chosen_head",
]
