"""Output layers: hidden vectors to normalised log-probabilities, and their losses."""

from __future__ import annotations

from dataclasses import replace

from unspool.heads.bilinear import BilinearHeadConfig
from unspool.heads.elementwise import CappedHeadConfig, SigsoftmaxHeadConfig
from unspool.heads.kerbs import KerbsHeadConfig
from unspool.heads.mixture import MixtureHeadConfig
from unspool.heads.softmax import SoftmaxHeadConfig, TemperedHeadConfig

HeadConfig = (
    BilinearHeadConfig
    | CappedHeadConfig
    | KerbsHeadConfig
    | MixtureHeadConfig
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
    if isinstance(head, KerbsHeadConfig) or head.tied is not None:
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
    "SigsoftmaxHeadConfig",
    "SoftmaxHeadConfig",
    "TemperedHeadConfig",
    "chosen_head",
]
