"""How a family of files names and lays out the weights of a Transformer, and what ours are made of.

    ours                          Llama                     GPT-2
    attention.qkv   [(H+2K)I, D]  q_proj over k_proj over v c_attn, stored transposed
    feed_forward.up [2F, D]       gate_proj over up_proj    c_fc [F, D], stored transposed

Shapes: D width, H heads, K key–value heads, I head width, F inner width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unspool.nn.transformer import GATED

if TYPE_CHECKING:
    from unspool.models.transformer_lm import TransformerConfig
    from unspool.models.transformer_shape import TransformerShape


@dataclass(frozen=True)
class WeightLayout:
    """The names of one family's tensors and how their rows and columns lie."""

    names: Mapping[str, tuple[str, ...]]
    """Our module ("{}" stands for the layer) → the modules whose rows, stacked, make it."""
    turned: bool = False
    """Projections are stored [in, out], as GPT-2 has them in Hugging Face's files."""
    interleaved: bool = False
    """Rows of queries and keys lie so that rotary pairs are neighbours, as GGUF files of Llama have them."""
    ignored: str = r"(?!)"
    """A pattern for tensors that are no weights: masks, tables of frequencies."""
    unbiased: frozenset[str] = frozenset()
    """Modules without a bias although others have one: theirs is zero."""
    adjusted: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """Our module → for each of the modules that make it, what its numbers are multiplied by, and what is then
    added: factors and offsets that a family computes with, and we have in the weights."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Our module → rows in front of theirs that no token ever reads."""


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Rows of one of our tensors that come from one tensor of a file."""

    source: str | None
    """None for zeros: a bias that the file does not have."""
    shape: tuple[int, ...]
    """As we lay it out."""
    turned: bool = False
    heads: int = 0
    """Not 0: so many heads have their rotary pairs interleaved."""
    scale: float = 1.0
    """What the stored numbers are multiplied by."""
    plus: float = 0.0
    """What is then added."""
    skipped: int = 0
    """So many rows in front are left out."""
    in_row: bool = False
    """A vector that is stored as a matrix of one row."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """As the file lays it out."""
        if self.in_row:
            return (1, *self.shape)
        if self.skipped:
            return (self.shape[0] + self.skipped, *self.shape[1:])
        return self.shape[::-1] if self.turned else self.shape

    @property
    def as_it_is(self) -> bool:
        """Whether the stored numbers are ours."""
        return (self.scale, self.plus) == (1.0, 0.0)


@dataclass(frozen=True, slots=True)
class TargetTensor:
    """One of our tensors and the pieces that it is stacked of."""

    name: str
    shape: tuple[int, ...]
    pieces: tuple[SourcePart, ...]
    matrix: bool = False
    """It is multiplied with, or its rows are looked up: it may stay as it is stored."""


@dataclass(frozen=True, slots=True)
class ModuleShape:
    """One of our modules: the rows that each of its pieces brings, its columns, and whether it has a bias."""

    rows: tuple[int, ...]
    columns: int | None
    bias: bool = False
    projection: bool = False
    heads: tuple[int, ...] = ()
    matrix: bool = False


def plan_tensors(config: TransformerConfig, dialect: WeightLayout) -> Iterator[TargetTensor]:
    """Our tensors one by one, each with its pieces.

    An iterator, not a list: a configuration that lies about its layers is caught at the first one missing.
    """
    for module, part in _outer_modules(config).items():
        adjusted = dialect.adjusted.get(module, ())
        # A head that does more than multiply keeps the words' vectors in a part of its own.
        ours = "head.words" if module == "head" and config.head is not None else module
        yield from module_tensors(ours, dialect.names[module], part, dialect, adjusted, biased=True)
    inside = block_modules(config)
    for layer in range(config.layers):
        for module, part in inside.items():
            template = "blocks.{}." + module
            sources = tuple(source.format(layer) for source in dialect.names[template])
            adjusted = dialect.adjusted.get(template, ())
            biased = module not in dialect.unbiased
            yield from module_tensors(template.format(layer), sources, part, dialect, adjusted, biased=biased)


def _outer_modules(config: TransformerConfig) -> dict[str, ModuleShape]:
    words = ModuleShape((config.vocab_size,), config.width, matrix=True)
    parts = {"embed": words}
    if config.positions == "learned" and config.context is not None:
        parts["positions"] = ModuleShape((config.context,), config.width)
    parts["norm"] = ModuleShape((config.width,), None, config.norm == "layer")
    if not config.tied:
        parts["head"] = words
    return parts


def block_modules(c: TransformerShape) -> dict[str, ModuleShape]:
    """The modules of one block, but for attention to a source."""
    norm = ModuleShape((c.width,), None, c.norm == "layer")
    qkv = tuple(count * c.each_width for count in (c.heads, c.key_value_heads, c.key_value_heads))
    up = (c.inner_width, c.inner_width) if c.activation in GATED else (c.inner_width,)
    more: dict[str, ModuleShape] = {}
    if c.qk_norm != "none":
        widths = (c.each_width, c.each_width)
        if c.qk_norm == "whole":
            widths = (c.heads * c.each_width, c.key_value_heads * c.each_width)
        more = {
            "attention.norm.query": ModuleShape(widths[:1], None),
            "attention.norm.key": ModuleShape(widths[1:], None),
        }
    if c.norm_place == "both":
        more |= {"attention_post_norm": norm, "feed_forward_post_norm": norm}
    return more | {
        "attention_norm": norm,
        "attention.qkv": ModuleShape(
            qkv, c.width, c.bias or c.qkv_bias, True, (c.heads, c.key_value_heads, 0)
        ),
        "attention.out": ModuleShape((c.width,), c.heads * c.each_width, c.bias, True),
        "feed_forward_norm": norm,
        "feed_forward.up": ModuleShape(up, c.width, c.bias, True),
        "feed_forward.down": ModuleShape((c.width,), c.inner_width, c.bias, True),
    }


def module_tensors(
    module: str,
    sources: tuple[str, ...],
    part: ModuleShape,
    dialect: WeightLayout,
    adjusted: tuple[tuple[float, float], ...],
    *,
    biased: bool,
) -> Iterator[TargetTensor]:
    """The weight and the bias of one module."""
    # A family may keep in one tensor what another keeps in several.
    rows = part.rows if len(sources) == len(part.rows) else (sum(part.rows),)
    heads = part.heads if dialect.interleaved and part.heads else (0,) * len(rows)
    columns = () if part.columns is None else (part.columns,)
    turned = dialect.turned and part.projection
    adjusted = adjusted or ((1.0, 0.0),) * len(rows)
    skipped = dialect.skipped.get(module, 0)
    weights = tuple(
        SourcePart(f"{source}.weight", (count, *columns), turned, paired, scale, plus, skipped)
        for source, count, paired, (scale, plus) in zip(sources, rows, heads, adjusted, strict=True)
    )
    yield TargetTensor(f"{module}.weight", (sum(rows), *columns), weights, part.matrix or part.projection)
    if part.bias:
        biases = tuple(
            SourcePart(f"{source}.bias" if biased else None, (count,), heads=paired, scale=scale)
            for source, count, paired, (scale, _) in zip(sources, rows, heads, adjusted, strict=True)
        )
        yield TargetTensor(f"{module}.bias", (sum(rows),), biases)
