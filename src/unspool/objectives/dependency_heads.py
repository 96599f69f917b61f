"""Dependency heads: train attention heads to follow the labelled arcs of a treebank, one label per head.

    L = −1/|A| Σ_{(v,w) ∈ A} log α_words[label(v,w), v, w],   α(dobj, prefer, flight) = 1 at best

McAllester's problems on attention, 1(a) (papers.bib: mcallester2020problems); Strubell et al. 2018, §2.2
(papers.bib: strubell2018linguistically), which trains one head to attend to each word's syntactic parent.
The arcs A are those of random sentences of a treebank, drawn anew at every update and distributed over its
batches. An arc goes from the later word to the earlier one, which a causal model can attend to; it is
reversed for right-to-left models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from unspool.checked_fields import Checked, integer
from unspool.data.batch import Batch
from unspool.data.conllu import TreeSentence, read_treebank
from unspool.data.random_numbers import random_bits
from unspool.interfaces import Clock, Loss, PreparedLoss, Trainable
from unspool.nn.attention import label_arcs, word_attention
from unspool.objectives.attention_losses import AttentionLoss
from unspool.objectives.rollouts import empty_loss
from unspool.tokenization import Tokenizer
from unspool.tokenization.word_alignment import AlignedWords, align_words


@dataclass(frozen=True)
class DependencyHeads(Checked, AttentionLoss):
    """−log α of the arcs of a treebank; head k of a layer learns the k-th label."""

    treebank: str
    """A file in the CoNLL-U format."""
    labels: tuple[str, ...] = ("nsubj", "obj")
    """The labels of the first heads of the layer; "nsubj" also matches "nsubj:pass"."""
    layer: int = integer(0, at_least=0)
    """The layer, counted from 0."""
    rows: int = integer(8, at_least=1)
    """Sentences of the treebank per update."""

    watches = False  # it reads the treebank instead of the batch
    own_batches = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={list(self.labels)} must be one or more distinct labels")

    def files(self) -> Mapping[str, str]:
        return {"treebank": self.treebank}

    @cached_property
    def _sentences(self) -> list[TreeSentence]:
        found = [it for it in read_treebank(self.treebank) if any(map(len, _arcs(it, self.labels)))]
        if not found:
            raise ValueError(f"{self.treebank} has no arc with a label of {', '.join(self.labels)}")
        return found

    @cached_property
    def _spelled(self) -> dict[int, AlignedWords]:
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
        mine = self._drawn(clock)[clock.micro_batch :: clock.micro_batches]
        spelled = [(at, self._tokens(at, model)) for at in mine]
        kept = [(at, it) for at, it in spelled if model.context is None or len(it.ids) <= model.context]
        if not kept:
            return empty_loss("dependency_heads")
        arcs = sum(len(them) for at, _ in kept for them in _arcs(self._sentences[at], self.labels))
        right_to_left: bool = model.tokenizer.right_to_left
        return PreparedLoss(float(arcs), lambda reader: self._loss(reader, batch, kept, right_to_left))

    def _drawn(self, clock: Clock) -> list[int]:
        """The indices of the sentences of an update."""
        count = len(self._sentences)
        if clock.seed is None:
            return [int(it) for it in torch.randint(count, (self.rows,))]
        return [int(it) % count for it in random_bits(self.rows, clock.seed)]

    def _loss(
        self, model: Trainable, batch: Batch, kept: list[tuple[int, AlignedWords]], right_to_left: bool
    ) -> Loss:
        _, (stack,) = self.reading(model).read_attention(pad_rows([it.ids for _, it in kept], batch))
        costs = []
        for row, (at, it) in enumerate(kept):
            alpha_HWW = word_attention(
                stack.layers[self.layer][row, :, : len(it.ids), : len(it.ids)], it.tokens
            )
            costs += [
                arc_cost(alpha_HWW[head], arcs)
                for head, arcs in enumerate(_arcs(self._sentences[at], self.labels, right_to_left))
                if arcs
            ]
        cost_A = torch.cat(costs)
        return Loss(cost_A.sum(), float(len(cost_A)), {"dependency_heads": float(cost_A.detach().sum())})

    def _tokens(self, at: int, model: Any) -> AlignedWords:
        if at not in self._spelled:
            sentence = self._sentences[at]
            places = [(it.begin, it.end) for it in sentence.words]
            self._spelled[at] = align_words(sentence.text, places, model.tokenizer, bos=model.reads_bos)
        return self._spelled[at]


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
    words = [(it.head, it.label) for it in sentence.words]
    return [label_arcs(words, label, right_to_left=right_to_left) for label in labels]
