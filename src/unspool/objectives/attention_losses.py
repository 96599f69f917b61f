"""Attention losses: regularise attention weights by entropy or distance, or train heads to follow arcs.

    L = Σ cost / Σ 1   over rows, positions, layers and heads

Both sums are divided by the number of layers and heads, so the weight of a loss counts positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unspool.arguments import Checked, integer, number
from unspool.data.batch import Batch
from unspool.data.conllu import TreeSentence, read_treebank
from unspool.data.random_numbers import random_bits
from unspool.interfaces import (
    AttentionReading,
    AttentionStack,
    Clock,
    Loss,
    Objective,
    PreparedLoss,
    Trainable,
)
from unspool.nn.attention import label_arcs, word_attention
from unspool.objectives.masked import full_texts
from unspool.objectives.rollouts import empty_loss
from unspool.tokenization import Tokenizer
from unspool.tokenization.word_alignment import AlignedWords, align_words


class AttentionLoss(Objective):
    """Base class of attention losses; a subclass defines the cost of each position."""

    name: ClassVar[str]
    """The name in the stats."""
    free_layers: ClassVar[int] = 0
    """The number of last layers of each stack without cost."""
    needs_attention = True

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        """(N, H, T): the cost of each head and position."""
        raise NotImplementedError

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:  # noqa: ARG002
        _, stacks = self.reading(model).read_attention(batch)
        total, weight = self.sums(stacks)
        return Loss(total, weight, {self.name: float(total.detach())})

    def sums(self, stacks: Sequence[AttentionStack]) -> tuple[Tensor, float]:
        """The sum of costs, and the number of positions to divide it by."""
        counted = [stack.layers[: len(stack.layers) - self.free_layers] for stack in stacks]
        costs, positions, each = [], 0, 0
        for stack, layers in zip(stacks, counted, strict=True):
            for alpha_NHTT in layers:
                cost_NHT = self.cost(alpha_NHTT)
                real_NT = torch.arange(cost_NHT.shape[2], device=cost_NHT.device) < stack.lengths_N[:, None]
                costs.append(cost_NHT.masked_fill(~real_NT[:, None], 0.0).sum())
                positions += cost_NHT.shape[1] * int(stack.lengths_N.sum())
                each += cost_NHT.shape[1]
        return torch.stack(costs).sum() / each, positions / each

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:
        """The weight is the number of positions of `sums`."""
        sides = [
            lengths_N for lengths_N in (batch.source_lengths_N, batch.lengths_N) if lengths_N is not None
        ]
        if model.infilling is not None:
            sides[-1] = full_texts(model, batch)[1]
        heads = [(layers - self.free_layers) * heads for layers, heads in self.reading(model).attention_heads]
        positions = sum(each * int(lengths_N.sum()) for each, lengths_N in zip(heads, sides, strict=True))
        return PreparedLoss(positions / sum(heads), lambda reader: self(reader, batch, clock))

    def check(self, model: Trainable) -> None:
        self.reading(model)

    def reading(self, model: Trainable) -> AttentionReading:
        if model.attention_reading is None:
            raise ValueError(
                f"an attention loss needs a Transformer, but {type(model).__name__} does not return "
                "attention weights: choose another model.kind (or encoder), or remove the loss"
            )
        return model.attention_reading


@dataclass(frozen=True)
class AttentionFocus(AttentionLoss):
    """Focused attention: the mean entropy of every head's attention, in nats.

        L_focus = 1/(K·T·L) Σ_{ℓ,k,t₁} H(α[ℓ,k,t₁,·]),   H(a) = −Σ_{t₂} a[t₂] ln a[t₂]

    McAllester's problems on attention, 1(b) (papers.bib: mcallester2020problems). Attention to one position
    costs 0, uniform attention to T positions ln T. K heads, T real positions, L layers; in an
    encoder–decoder, self-attention of both sides.
    """

    name: ClassVar[str] = "attention_focus"

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        return entropy(alpha_NHTT)


def entropy(alpha_NHTS: Tensor) -> Tensor:
    """(N, H, T): −Σ α ln α with 0 · ln 0 = 0 and zero gradient there."""
    least = torch.finfo(alpha_NHTS.dtype).tiny
    return -(alpha_NHTS * alpha_NHTS.clamp(min=least).log()).sum(dim=-1)


@dataclass(frozen=True)
class AttentionNear(Checked, AttentionLoss):
    """Local attention: the mean squared distance of attention up to a cap, except in the last layer.

        L_near = 1/(K·T·(L−1)) Σ_{k,t₁,ℓ≤L−2} min( L_max, Σ_{t₂} α[ℓ,k,t₁,t₂]·(t₁ − t₂)² )

    McAllester's problems on attention, 1(c) (papers.bib: mcallester2020problems). The cap makes the loss
    robust: beyond L_max the gradient is zero. The last layer of each stack is not included. K heads, T real
    positions, L layers; in an encoder–decoder, both sides.
    """

    cap: float = number(64.0, above=0)
    """L_max, the largest cost of a position. 64 corresponds to a distance of 8."""

    name: ClassVar[str] = "attention_near"
    free_layers: ClassVar[int] = 1

    def check(self, model: Trainable) -> None:
        super().check(model)
        stacks = [part for name, part in model.named_modules() if name.endswith("blocks")]  # type: ignore[attr-defined]
        if all(len(stack) < 2 for stack in stacks):
            raise ValueError(
                "attention_near excludes the last layer, but this model has only one: use more layers, "
                "or remove attention_near"
            )

    def cost(self, alpha_NHTT: Tensor) -> Tensor:
        return distance(alpha_NHTT).clamp(max=self.cap)


def distance(alpha_NHTT: Tensor) -> Tensor:
    """(N, H, T): Σ_{t₂} α (t₁ − t₂)²."""
    place_T = torch.arange(alpha_NHTT.shape[-1], device=alpha_NHTT.device, dtype=alpha_NHTT.dtype)
    return (alpha_NHTT * (place_T[:, None] - place_T).square()).sum(dim=-1)


@dataclass(frozen=True)
class DependencyHeads(Checked, AttentionLoss):
    """Dependency heads: train attention heads to follow the labelled arcs of a treebank, one label per head.

        L = −1/|A| Σ_{(v,w) ∈ A} log α_words[label(v,w), v, w],   α(dobj, prefer, flight) = 1 at best

    McAllester's problems on attention, 1(a) (papers.bib: mcallester2020problems); Strubell et al. 2018, §2.2
    (papers.bib: strubell2018linguistically), which trains one head to attend to each word's syntactic parent.
    The arcs A are those of random sentences of a treebank, drawn anew at every update and distributed over
    its batches. An arc goes from the later word to the earlier one, which a causal model can attend to; it is
    reversed for right-to-left models. Head k of a layer learns the k-th label.
    """

    treebank: str
    """A file in the CoNLL-U format."""
    labels: tuple[str, ...] = ("nsubj", "obj")
    """The labels of the first heads of the layer; "nsubj" also matches "nsubj:pass"."""
    layer: int = integer(0, at_least=0)
    """The layer, counted from 0."""
    rows: int = integer(8, at_least=1)
    """Sentences of the treebank per update."""

    needs_attention = False  # it reads the treebank instead of the batch
    own_batches = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={list(self.labels)} must be one or more distinct labels")

    def files(self) -> Mapping[str, str]:
        return {"treebank": self.treebank}

    @cached_property
    def _sentences(self) -> list[TreeSentence]:
        found = [
            sentence
            for sentence in read_treebank(self.treebank)
            if any(map(len, _arcs(sentence, self.labels)))
        ]
        if not found:
            raise ValueError(f"{self.treebank} has no arc with a label of {', '.join(self.labels)}")
        return found

    @cached_property
    def _aligned(self) -> dict[int, AlignedWords]:
        return {}

    def check(self, model: Trainable) -> None:
        super().check(model)
        if model.is_encoder_decoder or not isinstance(model.tokenizer, Tokenizer):
            raise ValueError(
                "dependency_heads needs a decoder-only model, tagger or classifier whose tokenizer gives "
                "character offsets"
            )
        ((layers, heads),) = self.reading(model).attention_heads
        if self.layer >= layers or len(self.labels) > heads:
            raise ValueError(
                f"layer={self.layer} and {len(self.labels)} labels do not fit a model of {layers} layers "
                f"(from 0) with {heads} heads each: each label needs a head"
            )
        _ = self._sentences

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        return self.prepare(model, batch, clock).compute(model)

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:
        """The weight is the number of arcs of this batch's sentences."""
        drawn = self._drawn(clock)[clock.micro_batch :: clock.micro_batches]
        aligned = [(at, self._tokens(at, model)) for at in drawn]
        kept = [
            (at, words) for at, words in aligned if model.context is None or len(words.ids) <= model.context
        ]
        if not kept:
            return empty_loss("dependency_heads")
        arcs = sum(len(them) for at, _ in kept for them in _arcs(self._sentences[at], self.labels))
        right_to_left: bool = model.tokenizer.right_to_left
        return PreparedLoss(float(arcs), lambda reader: self._loss(reader, batch, kept, right_to_left))

    def _drawn(self, clock: Clock) -> list[int]:
        count = len(self._sentences)
        if clock.seed is None:
            return [int(number) for number in torch.randint(count, (self.rows,))]
        return [int(number) % count for number in random_bits(self.rows, clock.seed)]

    def _loss(
        self, model: Trainable, batch: Batch, kept: list[tuple[int, AlignedWords]], right_to_left: bool
    ) -> Loss:
        _, (stack,) = self.reading(model).read_attention(pad_rows([words.ids for _, words in kept], batch))
        costs = []
        for row, (at, words) in enumerate(kept):
            alpha_HWW = word_attention(
                stack.layers[self.layer][row, :, : len(words.ids), : len(words.ids)], words.tokens
            )
            costs += [
                arc_cost(alpha_HWW[head], arcs)
                for head, arcs in enumerate(_arcs(self._sentences[at], self.labels, right_to_left))
                if arcs
            ]
        cost_A = torch.cat(costs)
        return Loss(cost_A.sum(), float(len(cost_A)), {"dependency_heads": float(cost_A.detach().sum())})

    def _tokens(self, at: int, model: Any) -> AlignedWords:
        if at not in self._aligned:
            sentence = self._sentences[at]
            places = [(word.begin, word.end) for word in sentence.words]
            self._aligned[at] = align_words(sentence.text, places, model.tokenizer, bos=model.reads_bos)
        return self._aligned[at]


def arc_cost(alpha_WW: Tensor, arcs: list[tuple[int, int]]) -> Tensor:
    """(A): −log α of each arc."""
    least = torch.finfo(alpha_WW.dtype).tiny
    later, earlier = zip(*arcs, strict=True)
    return -alpha_WW[list(later), list(earlier)].clamp(min=least).log()


def pad_rows(rows: list[tuple[int, ...]], like: Batch | None = None) -> Batch:
    """A padded batch of rows without targets."""
    lengths_N = torch.tensor([len(row) for row in rows])
    tokens_NT = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    made = Batch(tokens_NT, lengths_N, tokens_NT, torch.zeros(tokens_NT.shape))
    return made if like is None else made.to(like.inputs_NT.device)


def _arcs(
    sentence: TreeSentence, labels: tuple[str, ...], right_to_left: bool = False
) -> list[list[tuple[int, int]]]:
    words = [(word.head, word.label) for word in sentence.words]
    return [label_arcs(words, label, right_to_left=right_to_left) for label in labels]
