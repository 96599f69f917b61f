"""Weight layout: how a model family names and lays out its tensors, and how ours are built from them.

    ours                          Llama                     GPT-2
    attention.qkv   [(H+2K)I, D]  q_proj over k_proj over v c_attn, stored transposed
    feed_forward.up [2F, D]       gate_proj over up_proj    c_fc [F, D], stored transposed

Shapes: D width, H heads, K key–value heads, I head width, F inner width, V vocabulary.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unspool.engine.stored_weights import StoredWeight
from unspool.models.transformer_shape import TransformerShape


@dataclass(frozen=True)
class WeightLayout:
    """Tensor names and storage order of one model family."""

    names: Mapping[str, tuple[str, ...]]
    """Our module ("{}" is the layer number) → the modules whose rows are stacked to form it."""
    transposed: bool = False
    """Projections are stored as [in, out], as in Hugging Face's GPT-2 files."""
    interleaved: bool = False
    """Rows of queries and keys are stored with rotary pairs adjacent, as in GGUF files of Llama."""
    ignored: str = r"(?!)"
    """Pattern of tensors that are not weights: masks, frequency tables."""
    unbiased: frozenset[str] = frozenset()
    """Modules without a stored bias although others have one; theirs is zero."""
    affine: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """Our module → (scale, offset) applied to each stacked part: constants of the family that we fold into
    the weights."""
    skipped_rows: Mapping[str, int] = field(default_factory=dict)
    """Our module → number of leading stored rows that no token uses."""


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Rows of one of our tensors that are read from one tensor of a file."""

    source: str
    """Name in the file."""
    shape: tuple[int, ...]
    """Shape in our tensor."""
    transposed: bool = False
    heads: int = 0
    """If not 0, the rows are this many heads with interleaved rotary pairs."""
    scale: float = 1.0
    """Multiplied with the stored numbers."""
    offset: float = 0.0
    """Added after scaling."""
    skipped_rows: int = 0
    """Number of leading rows to skip."""
    is_row: bool = False
    """A vector stored as a matrix of one row."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape in the file."""
        if self.is_row:
            return (1, *self.shape)
        if self.skipped_rows:
            return (self.shape[0] + self.skipped_rows, *self.shape[1:])
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def is_identity(self) -> bool:
        """True if scale and offset leave the stored numbers unchanged."""
        return (self.scale, self.offset) == (1.0, 0.0)


class TensorSource(ABC):
    """Named tensors in one or several files. Reading NaN or infinity raises a ValueError."""

    label: str
    """The file or folder, for messages."""
    shapes: Mapping[str, tuple[int, ...]]
    """The shape of every tensor."""

    @abstractmethod
    def stored(self, part: SourcePart) -> StoredWeight | None:
        """A matrix in its stored format; None for vectors and for types without a kernel."""

    @abstractmethod
    def fill(self, part: SourcePart, out: Tensor) -> None:
        """Write the numbers of a part into `out`."""

    def release(self, part: SourcePart) -> None:  # noqa: B027
        """Allow the system to drop the mapped pages of a part that has been read, if it can."""

    def check_finite(self, name: str, is_finite: bool) -> None:
        if not is_finite:
            raise ValueError(
                f"{self.label}: tensor {name!r} holds NaN or infinity: the file is damaged, or training "
                "diverged"
            )


@dataclass(frozen=True, slots=True)
class TargetTensor:
    """One of our tensors and the parts stacked to form it; without parts it is zero."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[SourcePart, ...]

    def split(self, tensor: Tensor) -> Sequence[Tensor]:
        """The rows of each part."""
        if len(self.parts) == 1:
            return (tensor,)
        return torch.split(tensor, [part.shape[0] for part in self.parts])


def plan_tensors(
    config: TransformerShape, shapes: Mapping[str, tuple[int, ...]], layout: WeightLayout
) -> list[TargetTensor]:
    """Our tensors, given their shapes, with the parts that form them."""
    return [TargetTensor(name, shape, _parts(config, name, shape, layout)) for name, shape in shapes.items()]


def _parts(
    c: TransformerShape, name: str, shape: tuple[int, ...], layout: WeightLayout
) -> tuple[SourcePart, ...]:
    if name in layout.names:  # "head.bias", a separate vector in BART
        return (SourcePart(layout.names[name][0], shape, is_row=True),)
    path, _, kind = name.rpartition(".")
    module = re.sub(r"\bblocks\.\d+", "blocks.{}", path.removesuffix(".words"))
    if kind == "bias" and module.rpartition("{}.")[2] in layout.unbiased:
        return ()
    layer = re.search(r"\d+", path)
    sources = [source.format(layer and layer[0]) for source in layout.names[module]]
    # A family may store in one tensor what another splits into several.
    rows, heads = [shape[0] // len(sources)] * len(sources), [0] * len(sources)
    if module.endswith("attention.qkv") and len(sources) == 3:
        rows = [count * c.each_width for count in (c.heads, c.key_value_heads, c.key_value_heads)]
        heads = [c.heads, c.key_value_heads, 0] if layout.interleaved else heads
    affine = layout.affine.get(module) or ((1.0, 0.0),) * len(sources)
    return tuple(
        SourcePart(
            f"{source}.{kind}",
            (count, *shape[1:]),
            transposed=layout.transposed and "blocks" in module and len(shape) == 2,
            heads=paired,
            scale=scale,
            offset=0.0 if kind == "bias" else offset,
            skipped_rows=layout.skipped_rows.get(module, 0),
        )
        for source, count, paired, (scale, offset) in zip(sources, rows, heads, affine, strict=True)
    )
