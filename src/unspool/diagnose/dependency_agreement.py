"""Which attention heads follow the dependency arcs of a treebank, compared with the best fixed offset.

    agreement[ℓ,k,label] = share of arcs (v, w) with w = argmax_{u ≠ v} α_words[ℓ,k,v,u]
    offset[d,label]      = share of arcs with w = v − d

Clark et al. 2019, §4.2 and table 1 (papers.bib: clark2019what), with its baseline; McAllester's problems on
attention, 1(a) (papers.bib: mcallester2020problems). Arcs are followed from the later word to the earlier
one, because causal models attend only to earlier words. The best head and offset are chosen on the same arcs
that measure them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unspool.arguments import as_int, items, shown
from unspool.data.conllu import TreeSentence
from unspool.decode.lockstep import declares_abilities
from unspool.nn.attention import find_arc_hits, label_arcs, word_attention
from unspool.objectives.attention_losses import pad_rows
from unspool.tokenization import Tokenizer
from unspool.tokenization.word_alignment import align_words

BATCH = 8


@dataclass(frozen=True)
class LabelAgreement:
    """Agreement of heads with the arcs of one label."""

    label: str
    arcs: int
    layer: int
    head: int
    """The best head and its layer, counted from 0."""
    agreement: float
    """Share of arcs that the best head follows."""
    offset: int
    """Best fixed offset, in words."""
    offset_agreement: float
    every: tuple[tuple[float, ...], ...]
    """Agreement of each head of each layer."""


def agreements(
    model: Any, sentences: Sequence[TreeSentence], labels: Sequence[str] | None = None, min_arcs: int = 50
) -> list[LabelAgreement]:
    """Measure the agreement for each label (default: those with `min_arcs` arcs), most frequent first."""
    if not declares_abilities(model):
        raise TypeError(f"{shown(model)} is not a model: load one with us.load()")
    sentences = items("sentences", sentences, "sentences from read_treebank")
    if not all(isinstance(sentence, TreeSentence) for sentence in sentences):
        raise TypeError("sentences must be from read_treebank")
    if labels is not None:
        labels = items("labels", labels, "names of labels")
        if not all(isinstance(label, str) for label in labels):
            raise TypeError(f"labels is {shown(labels)}, but must be names of labels")
    min_arcs = as_int("min_arcs", min_arcs, at_least=0, advice="Labels with fewer arcs are left out.")
    if (
        model.attention_reading is None
        or model.is_encoder_decoder
        or not isinstance(model.tokenizer, Tokenizer)
    ):
        raise ValueError(
            f"{type(model).__name__} is not supported: give a Transformer language model "
            "whose tokenizer maps tokens to characters"
        )
    hits: dict[str, Any] = {}
    counts: Counter[str] = Counter()
    offsets: dict[str, Counter[int]] = defaultdict(Counter)
    for first in range(0, len(sentences), BATCH):
        for words, layers in _read(model, sentences[first : first + BATCH]):
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
                    hits[label] = hits.get(label, 0) + right_LH
    if missing := [label for label in labels or () if not counts[label]]:
        raise ValueError(f"the treebank does not contain the label {missing[0]!r}")
    chosen = [label for label, count in counts.most_common() if labels or count >= min_arcs]
    return [_best(label, counts[label], hits[label], offsets[label]) for label in chosen]


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
    """Return heads and labels of the words, and word attention by layer, of each sentence that fits."""
    fitting = []
    for sentence in sentences:
        spans = [(word.begin, word.end) for word in sentence.words]
        aligned = align_words(sentence.text, spans, model.tokenizer, bos=model.reads_bos)
        if model.context is None or len(aligned.ids) <= model.context:
            fitting.append((sentence, aligned))
    if not fitting:
        return []
    batch = pad_rows([aligned.ids for _, aligned in fitting]).to(next(model.parameters()).device)
    _, (stack,) = model.attention_reading.read_attention(batch)
    hits = []
    for row, (sentence, aligned) in enumerate(fitting):
        T = len(aligned.ids)
        layers = [word_attention(alpha[row, :, :T, :T].float(), aligned.tokens) for alpha in stack.layers]
        hits.append(([(word.head, word.label) for word in sentence.words], layers))
    return hits
