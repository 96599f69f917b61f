"""Output layers: hidden vectors to normalised log-probabilities, and their losses."""

from __future__ import annotations

from dataclasses import replace

from unspool.heads.bilinear import BilinearHead
from unspool.heads.kerbs import KerbsHead
from unspool.heads.mixture import MixtureHead
from unspool.heads.sigsoftmax import SigsoftmaxHead
from unspool.heads.softmax import SoftmaxHead
from unspool.heads.tempered import TemperedHead

HeadConfig = BilinearHead | KerbsHead | MixtureHead | SigsoftmaxHead | SoftmaxHead | TemperedHead
"""Any of the settings in HEADS."""

HEADS: dict[str, type[HeadConfig]] = {
    "softmax": SoftmaxHead,
    "tempered": TemperedHead,
    "bilinear": BilinearHead,
    "mixture": MixtureHead,
    "sigsoftmax": SigsoftmaxHead,
    "kerbs": KerbsHead,
}


def chosen_head(head: HeadConfig | None, tied: bool) -> HeadConfig:
    """The head of a model: the plain softmax where none is given, and tied as the model is unless it says."""
    if head is None:
        return SoftmaxHead(tied=tied)
    if isinstance(head, KerbsHead) or head.tied is not None:
        return head
    # Vectors of a width of their own cannot be the embedding: nobody has asked for that.
    own = isinstance(head, BilinearHead) and head.inner_width is not None
    return replace(head, tied=tied and not own)


__all__ = [
    "HEADS",
    "BilinearHead",
    "HeadConfig",
    "KerbsHead",
    "MixtureHead",
    "SigsoftmaxHead",
    "SoftmaxHead",
    "TemperedHead",
    "chosen_head",
]
