"""Output layers: hidden vectors to normalised log-probabilities, and their losses."""

from __future__ import annotations

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

__all__ = [
    "HEADS",
    "BilinearHead",
    "HeadConfig",
    "KerbsHead",
    "MixtureHead",
    "SigsoftmaxHead",
    "SoftmaxHead",
    "TemperedHead",
]
