"""One head, one label: heads of a layer are taught to look along the arcs of a treebank.

    L = −1/|A| Σ_{(v,w) ∈ A} log α_words[label(v,w), v, w],   α(dobj, prefer, flight) = 1 at best

McAllester's problems on attention, 1(a) (papers.bib: mcallester2020problems); Strubell et al. 2018, §2.2
(papers.bib: strubell2018linguistically), which has one head look at each word's syntactic parent. A is drawn
from a treebank's sentences, others at every update, and shared out among its batches; they need not be what
the model learns to say. An arc is followed from the later of its words to the earlier, which a causal model
can see; a model that reads from right to left sees the other one, and the arc is turned round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from unspool.data.batch import Batch
from unspool.data.conllu import TreeSentence, read_treebank
from unspool.data.split import random_bits
from unspool.interfaces import Clock, Loss, PreparedLoss, Trainable
from unspool.nn.attention import label_arcs, word_attention
from unspool.objectives.attention_losses import AttentionLoss
from unspool.objectives.rollouts import nothing_to_learn
from unspool.tokenization import Tokenizer
from unspool.tokenization.word_alignment import AlignedWords, align_words


@dataclass(frozen=True)
class DependencyHeads(AttentionLoss):
    """−log α of a treebank's arcs: head k of a layer learns the k-th label."""

    treebank: str
    """A file in the CoNLL-U format."""
    labels: tuple[str, ...] = ("nsubj", "obj")
    """What the first heads of the layer learn, one each; "nsubj" is "nsubj:pass", too."""
    layer: int = 0
    """Whose heads, counted from 0."""
    rows: int = 8
    """Sentences of the treebank for each update."""

    def __post_init__(self) -> None:
        if not self.labels or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels={list(self.labels)} must be one or more, each of them once")
        for name, least in (("layer", 0), ("rows", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")

    @property
    def watches(self) -> bool:
        """Not at the batch: it has rows of its own."""
        return False

    @property
    def own_batches(self) -> bool:
        """It has the model read the treebank."""
        return True

    def files(self) -> Mapping[str, str]:
        """The treebank."""
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
        """Refuse a model without such heads, and a treebank that cannot be read."""
        super().check(model)
        own: Any = model
        if model.is_encoder_decoder or not isinstance(own.tokenizer, Tokenizer):
            raise ValueError(
                "dependency_heads are learnt by models of one text with a tokenizer that knows the "
                "characters of each token: choose a language model, a tagger or a classifier"
            )
        ((layers, heads),) = self.reading(model).attention_heads
        if self.layer >= layers or len(self.labels) > heads:
            raise ValueError(
                f"layer={self.layer} and {len(self.labels)} labels do not fit a model of {layers} "
                f"layers with {heads} heads each: layers count from 0, and each label takes a head"
            )
        _ = self._sentences

    def __call__(self, model: Trainable, batch: Batch, clock: Clock) -> Loss:
        """Draw sentences, then the sum over their arcs."""
        return self.prepare(model, batch, clock).compute(model)

    def prepare(self, model: Trainable, batch: Batch, clock: Clock) -> PreparedLoss:
        """The weight counts the arcs of the sentences that this batch takes."""
        own: Any = model
        mine = self._drawn(clock)[clock.micro_batch :: clock.micro_batches]
        spelled = [(at, self._tokens(at, own)) for at in mine]
        kept = [(at, it) for at, it in spelled if own.context is None or len(it.ids) <= own.context]
        if not kept:
            return nothing_to_learn("dependency_heads")
        arcs = sum(len(them) for at, _ in kept for them in _arcs(self._sentences[at], self.labels))
        backwards = own.tokenizer.right_to_left
        return PreparedLoss(float(arcs), lambda reader: self._loss(reader, batch, kept, backwards))

    def _drawn(self, clock: Clock) -> list[int]:
        """The sentences of an update."""
        count = len(self._sentences)
        if clock.seed is None:
            return [int(it) for it in torch.randint(count, (self.rows,))]
        return [int(it) % count for it in random_bits(self.rows, clock.seed)]

    def _loss(
        self, model: Trainable, batch: Batch, kept: list[tuple[int, AlignedWords]], right_to_left: bool
    ) -> Loss:
        _, (stack,) = self.reading(model).read_attention(as_batch([it.ids for _, it in kept], batch))
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


def as_batch(rows: list[tuple[int, ...]], like: Batch | None = None) -> Batch:
    """Rows of tokens side by side, to be read only."""
    lengths_N = torch.tensor([len(row) for row in rows])
    tokens_NT = torch.zeros(len(rows), int(lengths_N.max()), dtype=torch.long)
    for at, row in enumerate(rows):
        tokens_NT[at, : len(row)] = torch.tensor(row)
    made = Batch(tokens_NT, lengths_N, tokens_NT, torch.zeros(tokens_NT.shape))
    return made if like is None else made.to(like.inputs_NT.device)


def _arcs(
    sentence: TreeSentence, labels: tuple[str, ...], right_to_left: bool = False
) -> list[list[tuple[int, int]]]:
    words = [(it.head, it.label) for it in sentence.words]
    return [label_arcs(words, label, right_to_left=right_to_left) for label in labels]
