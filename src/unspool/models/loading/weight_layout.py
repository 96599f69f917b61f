"""Weight layout: how a model family names and lays out its tensors, and how ours are built from them.

    ours                          Llama                     GPT-2
    attention.qkv   [(H+2K)I, D]  q_proj over k_proj over v c_attn, stored transposed
    feed_forward.up [2F, D]       gate_proj over up_proj    c_fc [F, D], stored transposed

Shapes: D width, H heads, K key–value heads, I head width, F inner width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from unspool.heads import SoftmaxHeadConfig
from unspool.nn.transformer import GATED

if TYPE_CHECKING:
    from unspool.models.transformer_lm import TransformerConfig
    from unspool.models.transformer_seq2seq import TransformerSeq2SeqConfig
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

    source: str | None
    """Name in the file; None for zeros (a bias that the file does not store)."""
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


@dataclass(frozen=True, slots=True)
class TargetTensor:
    """One of our tensors and the parts stacked to form it."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[SourcePart, ...]
    is_matrix: bool = False
    """It is a projection or an embedding, so it can stay in its stored format."""


@dataclass(frozen=True, slots=True)
class ModuleShape:
    """Shape of one of our modules."""

    rows: tuple[int, ...]
    """Rows of each stacked part."""
    columns: int | None
    bias: bool = False
    is_projection: bool = False
    heads: tuple[int, ...] = ()
    is_matrix: bool = False


def plan_tensors(config: TransformerConfig, layout: WeightLayout) -> Iterator[TargetTensor]:
    """Our tensors with their parts.

    An iterator, not a list: a configuration with too many layers fails at the first missing one.
    """
    for module, shape in _outer_modules(config).items():
        # A head that is more than a matrix keeps the output embeddings in `words`.
        ours = "head.words" if module == "head" and config.head is not None else module
        yield from module_tensors(ours, module, shape, layout)
    yield from block_tensors("blocks.{}.", config.layers, block_modules(config), layout)


def _outer_modules(config: TransformerConfig) -> dict[str, ModuleShape]:
    embedding = ModuleShape((config.vocab_size,), config.width, is_matrix=True)
    modules = {"embed": embedding}
    if config.positions == "learned" and config.context is not None:
        modules["positions"] = ModuleShape((config.context,), config.width)
    modules["norm"] = ModuleShape((config.width,), None, config.norm == "layer")
    if not config.tied:
        modules["head"] = embedding
    return modules


def block_modules(c: TransformerShape) -> dict[str, ModuleShape]:
    """The modules of one block, without cross-attention."""
    norm = ModuleShape((c.width,), None, c.norm == "layer")
    qkv = tuple(count * c.each_width for count in (c.heads, c.key_value_heads, c.key_value_heads))
    up = (c.inner_width, c.inner_width) if c.activation in GATED else (c.inner_width,)
    optional: dict[str, ModuleShape] = {}
    if c.qk_norm != "none":
        widths = (c.each_width, c.each_width)
        if c.qk_norm == "whole":
            widths = (c.heads * c.each_width, c.key_value_heads * c.each_width)
        optional = {
            "attention.norm.query": ModuleShape(widths[:1], None),
            "attention.norm.key": ModuleShape(widths[1:], None),
        }
    if c.norm_place == "both":
        optional |= {"attention_post_norm": norm, "feed_forward_post_norm": norm}
    return optional | {
        "attention_norm": norm,
        "attention.qkv": ModuleShape(
            qkv, c.width, c.bias or c.qkv_bias, True, (c.heads, c.key_value_heads, 0)
        ),
        "attention.out": ModuleShape((c.width,), c.heads * c.each_width, c.bias, True),
        "feed_forward_norm": norm,
        "feed_forward.up": ModuleShape(up, c.width, c.bias, True),
        "feed_forward.down": ModuleShape((c.width,), c.inner_width, c.bias, True),
    }


def block_tensors(
    prefix: str, layers: int, modules: Mapping[str, ModuleShape], layout: WeightLayout
) -> Iterator[TargetTensor]:
    """The tensors of all blocks; `prefix` is "blocks.{}." or "encoder.blocks.{}."."""
    for layer in range(layers):
        for module, shape in modules.items():
            has_bias = module not in layout.unbiased
            yield from module_tensors(
                (prefix + module).format(layer), prefix + module, shape, layout, layer, has_bias=has_bias
            )


def module_tensors(
    name: str,
    module: str,
    shape: ModuleShape,
    layout: WeightLayout,
    layer: int = 0,
    *,
    has_bias: bool = True,
) -> Iterator[TargetTensor]:
    """The weight and the bias of one module; `module` is its name in the layout."""
    sources = [source.format(layer) for source in layout.names[module]]
    # A family may store in one tensor what another splits into several.
    rows = shape.rows if len(sources) == len(shape.rows) else (sum(shape.rows),)
    heads = shape.heads if layout.interleaved and shape.heads else (0,) * len(rows)
    columns = () if shape.columns is None else (shape.columns,)
    transposed = layout.transposed and shape.is_projection
    affine = layout.affine.get(module) or ((1.0, 0.0),) * len(rows)
    skipped = layout.skipped_rows.get(module, 0)
    weights = tuple(
        SourcePart(f"{source}.weight", (count, *columns), transposed, paired, scale, offset, skipped)
        for source, count, paired, (scale, offset) in zip(sources, rows, heads, affine, strict=True)
    )
    yield TargetTensor(
        f"{name}.weight", (sum(rows), *columns), weights, shape.is_matrix or shape.is_projection
    )
    if shape.bias:
        biases = tuple(
            SourcePart(f"{source}.bias" if has_bias else None, (count,), heads=paired, scale=scale)
            for source, count, paired, (scale, _) in zip(sources, rows, heads, affine, strict=True)
        )
        yield TargetTensor(f"{name}.bias", (sum(rows),), biases)


def plan_seq2seq_tensors(config: TransformerSeq2SeqConfig, layout: WeightLayout) -> Iterator[TargetTensor]:
    """Our tensors of an encoder–decoder with their parts.

    ours                            BART
    encoder.blocks.0.attention.qkv  model.encoder.layers.0.self_attn.{q,k,v}_proj, stacked
    blocks.0.cross_attention.kv     model.decoder.layers.0.encoder_attn.{k,v}_proj, stacked
    """
    for module, shape in _seq2seq_outer_modules(config).items():
        yield from module_tensors(module, module, shape, layout)
    if isinstance(config.head, SoftmaxHeadConfig) and config.head.bias:
        (bias,) = layout.names["head.bias"]
        shape_V = (config.vocab_size,)
        yield TargetTensor("head.bias", shape_V, (SourcePart(bias, shape_V, is_row=True),))
    modules = block_modules(config)
    yield from block_tensors("encoder.blocks.{}.", config.encoder_layers, modules, layout)
    modules |= _cross_attention_modules(config)
    yield from block_tensors("blocks.{}.", config.decoder_layers, modules, layout)


def _seq2seq_outer_modules(c: TransformerSeq2SeqConfig) -> dict[str, ModuleShape]:
    embedding = ModuleShape((c.vocab_size,), c.width, is_matrix=True)
    norm = ModuleShape((c.width,), None, c.norm == "layer")
    modules = {"embed": embedding}
    for side in ("encoder.", ""):
        if c.positions == "learned" and c.context is not None:
            modules[f"{side}positions"] = ModuleShape((c.context,), c.width)
        if c.positions == "relative":
            modules[f"{side}relative"] = ModuleShape((c.relative_buckets,), c.heads)
        if c.embed_norm:
            modules[f"{side}embed_norm"] = norm
        if c.norm_place != "post":
            modules[f"{side}norm"] = norm
    if not c.tied:
        modules["head"] = embedding
    return modules


def _cross_attention_modules(c: TransformerSeq2SeqConfig) -> dict[str, ModuleShape]:
    """The cross-attention modules of a decoder block."""
    queries, keys, biased = c.heads * c.each_width, c.key_value_heads * c.each_width, c.bias or c.qkv_bias
    return {
        "cross_attention_norm": ModuleShape((c.width,), None, c.norm == "layer"),
        "cross_attention.query": ModuleShape((queries,), c.width, biased, True),
        "cross_attention.kv": ModuleShape((keys, keys), c.width, biased, True),
        "cross_attention.out": ModuleShape((c.width,), queries, c.bias, True),
    }
