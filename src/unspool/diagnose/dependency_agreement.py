"""Which heads look along the arcs of a treebank, label by label, beside the best fixed offset.

    agreement[ℓ,k,label] = share of arcs (v, w) with w = argmax_{u ≠ v} α_words[ℓ,k,v,u]
    offset[d,label]      = share of arcs with w = v − d

Clark et al. 2019, §4.2 and table 1 (papers.bib: clark2019what), with its baseline; McAllester's problems on
attention, 1(a) (papers.bib: mcallester2020problems). An arc is followed from the later of its words to the
earlier: a causal model sees no other way. The best of many heads, and of many offsets, are found on the arcs
that they are judged by.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unspool.data.conllu import TreeSentence
from unspool.decode.arguments import as_whole, declares_abilities, items, shown
from unspool.nn.attention import find_arc_hits, label_arcs, word_attention
from unspool.objectives.dependency_heads import pad_rows
from unspool.tokenization import Tokenizer
from unspool.tokenization.word_alignment import align_words

ROWS = 8


@dataclass(frozen=True)
class LabelAgreement:
    """How well heads find the arcs of one label."""

    label: str
    arcs: int
    layer: int
    head: int
    """The best head, and its layer, both counted from 0."""
    agreement: float
    """The share of arcs that it finds."""
    offset: int
    """The best fixed offset, in words."""
    offset_agreement: float
    every: tuple[tuple[float, ...], ...]
    """The agreement of each head of each layer."""


def agreements(
    model: Any, sentences: Sequence[TreeSentence], labels: Sequence[str] | None = None, least: int = 50
) -> list[LabelAgreement]:
    """For each label, or each with at least so many arcs, the most frequent first."""
    if not declares_abilities(model):
        raise TypeError(f"{shown(model)} is no model such as us.load() returns")
    sentences = items("sentences", sentences, "sentences, as read_treebank gives them")
    if not all(isinstance(it, TreeSentence) for it in sentences):
        raise TypeError("sentences must be those of a treebank, as read_treebank gives them")
    if labels is not None:
        labels = items("labels", labels, "names of labels")
        if not all(isinstance(it, str) for it in labels):
            raise TypeError(f"labels is {shown(labels)}, but must be names of labels.")
    least = as_whole("least", least, at_least=0, advice="A label with fewer arcs is left out.")
    if (
        model.attention_reading is None
        or model.is_encoder_decoder
        or not isinstance(model.tokenizer, Tokenizer)
    ):
        raise ValueError(
            "heads are looked at in Transformers that read one text, with a tokenizer that knows the "
            f"characters of each token: a {type(model).__name__} is none"
        )
    found: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    offsets: dict[str, Counter[int]] = defaultdict(Counter)
    for first in range(0, len(sentences), ROWS):
        for words, layers in _read(model, sentences[first : first + ROWS]):
            for label in labels or sorted(
                {name.partition(":")[0] for head, name in words if head is not None}
            ):
                arcs = label_arcs(words, label, right_to_left=model.tokenizer.right_to_left)
                if arcs:
                    counts[label] += len(arcs)
                    offsets[label].update(abs(later - earlier) for later, earlier in arcs)
                    right_LH = torch.stack(
                        [find_arc_hits(alpha_HWW, arcs).sum(dim=1) for alpha_HWW in layers]
                    )
                    found[label] = found.get(label, 0) + right_LH
    if missing := [label for label in labels or () if not counts[label]]:
        raise ValueError(f"the treebank has no arc with the label {missing[0]!r}")
    chosen = [label for label, count in counts.most_common() if labels or count >= least]
    return [_best(label, counts[label], found[label], offsets[label]) for label in chosen]


def _best(label: str, arcs: int, right_LH: Any, offsets: Counter[int]) -> LabelAgreement:
    share_LH = right_LH / arcs
    layer, head = divmod(int(share_LH.argmax()), share_LH.shape[1])
    ((offset, hits),) = offsets.most_common(1)
    every = tuple(tuple(map(float, row)) for row in share_LH.tolist())
    return LabelAgreement(label, arcs, layer, head, every[layer][head], offset, hits / arcs, every)


@torch.no_grad()
def _read(
    model: Any, sentences: Sequence[TreeSentence]
) -> list[tuple[list[tuple[int | None, str]], list[Any]]]:
    """Of each sentence that fits: its words' heads and labels, and where each layer's heads look at words."""
    kept = []
    for it in sentences:
        places = [(word.begin, word.end) for word in it.words]
        spelled = align_words(it.text, places, model.tokenizer, bos=model.reads_bos)
        if model.context is None or len(spelled.ids) <= model.context:
            kept.append((it, spelled))
    if not kept:
        return []
    batch = pad_rows([it.ids for _, it in kept]).to(next(model.parameters()).device)
    _, (stack,) = model.attention_reading.read_attention(batch)
    found = []
    for row, (sentence, spelled) in enumerate(kept):
        T = len(spelled.ids)
        layers = [word_attention(alpha[row, :, :T, :T].float(), spelled.tokens) for alpha in stack.layers]
        found.append(([(word.head, word.label) for word in sentence.words], layers))
    return found
