"""Classifiers (one label per text) and taggers (one label per word), and `predict`."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import torch
from torch import Tensor, nn

from unspool.arguments import integer, number
from unspool.data.batch import Batch
from unspool.errors import check_surrogates
from unspool.heads import HeadConfig, SoftmaxHeadConfig
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities, AttentionStack, TokenizerLike
from unspool.models.encoders import EncoderConfig, TransformerEncoder
from unspool.models.model_config import ModelSettings, check_build_arguments
from unspool.models.sequence_model import inference_method, unit_embedding
from unspool.models.sources import pad_rows
from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.word_alignment import WordTokens, tokenize_words


@dataclass(frozen=True)
class Prediction:
    """The most probable label and the probabilities of all labels."""

    label: str
    p: float
    """The probability of the label."""
    probabilities: Mapping[str, float]
    """The probability of every label, the most probable first."""


def rank_labels(logp_MK: Tensor, labels: Sequence[str]) -> list[Mapping[str, float]]:
    """For each row, the probability of every label, the most probable first."""
    if bool(logp_MK.isnan().any()):
        raise ValueError(
            "the model's probabilities are NaN: its weights are damaged, or its training diverged"
        )
    p_MK, order_MK = logp_MK.double().exp().sort(dim=-1, descending=True, stable=True)
    rows = zip(p_MK.tolist(), order_MK.tolist(), strict=True)
    return [{labels[i]: p for p, i in zip(p_K, order_K, strict=True)} for p_K, order_K in rows]


@dataclass(frozen=True, kw_only=True)
class LabellerConfig(ModelSettings):
    """Settings of a model that predicts labels."""

    vocab_size: int = integer(at_least=1)
    labels: tuple[str, ...]
    """The labels; target i is labels[i]."""
    encoder: EncoderConfig
    dropout: float = number(0.0, at_least=0, below=1)
    """Dropout before the head; the encoder has a separate setting."""
    head: HeadConfig | None = None
    """The head; None means a softmax with bias."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.labels) < 2:
            raise ValueError(f"labels={list(self.labels)!r} must be at least two labels")
        if len(set(self.labels)) < len(self.labels):
            twice = next(label for label in self.labels if self.labels.count(label) > 1)
            raise ValueError(f"label {twice!r} occurs twice: name each label once")


class Labeller(nn.Module, Abilities):
    """An embedding, an encoder and a head over labels."""

    reads_bos = False

    def __init__(self, config: LabellerConfig, tokenizer: TokenizerLike | None = None) -> None:
        super().__init__()
        check_build_arguments(config, LabellerConfig, tokenizer)
        c = self.config = config
        self.tokenizer = tokenizer
        self.embed = unit_embedding(c.vocab_size, c.encoder.width)
        self.encoder: Any = c.encoder.build(self.embed)
        self.dropout = nn.Dropout(c.dropout)
        head = c.head or SoftmaxHeadConfig(bias=True)
        self.head: Any = head.build(self.encoder.out_width, len(c.labels), None)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.config.labels

    @property
    def context(self) -> int | None:
        return self.encoder.context

    @property
    def attention_reading(self) -> Self | None:
        return self if isinstance(self.encoder, TransformerEncoder) else None

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        shape: Any = self.config.encoder
        return ((shape.layers, shape.heads),)

    @property
    def sense_head(self) -> Kerbs | None:
        return self.head if isinstance(self.head, Kerbs) else None

    def pool(self, memory_NTD: Tensor, lengths_N: Tensor) -> Tensor:
        """The vectors of the encoder output that have a label: (N, D) or (N, T, D)."""
        raise NotImplementedError

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, T) → (N, D) or (N, T, D): the input of the head."""
        memory_NTD = self.encoder(tokens_NT, lengths_N, attentions)
        return self.dropout(self.pool(memory_NTD, lengths_N))

    def hidden_for(self, batch: Batch, attentions: list[Tensor] | None = None) -> Tensor:
        hidden = self.hidden(batch.inputs_NT, batch.lengths_N, attentions)
        return hidden if hidden.dim() == 3 else hidden.unsqueeze(1)

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        attentions: list[Tensor] = []
        hidden_NUD = self.hidden_for(batch, attentions)
        return hidden_NUD, (AttentionStack(tuple(attentions), batch.lengths_N),)

    def forward(self, tokens_NT: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, T) → (N, K) or (N, T, K): log p of every label."""
        return self.head(self.hidden(tokens_NT, lengths_N))

    def read(self, texts: Sequence[str | Sequence[int]]) -> list[WordTokens]:
        """Tokenize and check texts (strings or token ids)."""
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence) or not texts:
            raise ValueError(f"give a list of at least one text, not {texts!r:.40}")
        rows = [self._read(item, place) for place, item in enumerate(texts)]
        most, size = self.context, self.config.vocab_size
        for place, row in enumerate(rows):
            if not row.ids:
                raise ValueError(f"text {place} is empty: there is nothing to label")
            if not 0 <= min(row.ids) <= max(row.ids) < size:
                raise ValueError(
                    f"text {place} holds a token outside the model's vocabulary 0…{size - 1}: was it encoded "
                    "by another model's tokenizer?"
                )
            if most is not None and len(row.ids) > most:
                raise ValueError(
                    f"text {place} has {len(row.ids)} tokens, and the model reads at most {most}: shorten it"
                )
        return rows

    def inputs(self, rows: Sequence[WordTokens]) -> tuple[Tensor, Tensor]:
        """Rows as one right-padded batch (N, T), and their lengths (N)."""
        return pad_rows([row.ids for row in rows], self.embed.weight.device)

    def tokenize_string(self, text: str) -> WordTokens:
        """The tokens of a text without BOS; words are only needed by taggers."""
        assert self.tokenizer is not None
        ids = self.tokenizer.encode(text) if text.strip() else []
        return WordTokens(ids[1:] if ids[:1] == [self.tokenizer.bos_id] else ids, [], [])

    def wrap_tokens(self, ids: list[int]) -> WordTokens:
        return WordTokens(ids, [], [])

    def _read(self, item: str | Sequence[int], place: int) -> WordTokens:
        if isinstance(item, str):
            if self.tokenizer is None:
                raise ValueError(f"text {place} is a string, but this model has no tokenizer: give token ids")
            return self.tokenize_string(item)
        try:
            if isinstance(item, (bytes, bytearray)):
                raise TypeError("bytes are no token ids")
            return self.wrap_tokens(list(map(operator.index, item)))
        except TypeError:
            raise TypeError(
                f"text {place} is {item!r:.40}, but must be a string or a list of token ids"
            ) from None


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(LabellerConfig):
    """Settings of a classifier."""

    def build(self, tokenizer: TokenizerLike | None = None) -> Classifier:
        return Classifier(self, tokenizer)


class Classifier(Labeller):
    """A classifier: one label per text.

        V^n → K:   log p(label | x) = head(dropout(summary(encoder(x))))

    The summary is the mean over the tokens of a Transformer, or the final states of a recurrent network.
    """

    def pool(self, memory_NTD: Tensor, lengths_N: Tensor) -> Tensor:
        return self.encoder.summary(memory_NTD, lengths_N)

    @inference_method
    def label(self, rows: Sequence[WordTokens]) -> list[Prediction]:
        ranked = rank_labels(self(*self.inputs(rows)), self.labels)
        return [Prediction(*next(iter(item.items())), item) for item in ranked]


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(LabellerConfig):
    """Settings of a tagger."""

    def build(self, tokenizer: TokenizerLike | None = None) -> Tagger:
        return Tagger(self, tokenizer)


@dataclass(frozen=True)
class TaggedWord(Prediction):
    """A word, its most probable label, and the probabilities of all labels."""

    word: str


class Tagger(Labeller):
    """A tagger: one label per word.

        V^n → K^n:   log p(label_t | x) = head(dropout(encoder(x)_t))

    The label of a word is that of its first token; words are separated by white space.
    """

    def pool(self, memory_NTD: Tensor, lengths_N: Tensor) -> Tensor:  # noqa: ARG002
        return memory_NTD

    @inference_method
    def label(self, rows: Sequence[WordTokens]) -> list[list[TaggedWord]]:
        logp_NTK = self(*self.inputs(rows))
        places = [(n, first) for n, row in enumerate(rows) for first in row.firsts]
        row_M, first_M = torch.tensor(places, device=logp_NTK.device).unbind(-1)
        ranked = iter(rank_labels(logp_NTK[row_M, first_M], self.labels))
        return [
            [
                TaggedWord(*next(iter(item.items())), item, word)
                for word, item in zip(row.words, islice(ranked, len(row.words)), strict=True)
            ]
            for row in rows
        ]

    def tokenize_string(self, text: str) -> WordTokens:
        """The tokens of a text without BOS, and its words."""
        if not isinstance(self.tokenizer, Tokenizer):
            raise TypeError(
                f"{type(self.tokenizer).__name__} does not give character offsets, so words are unknown: "
                "pass token ids, or build the model with an unspool.tokenization.Tokenizer"
            )
        check_surrogates(text, "the text")
        (ranked,) = tokenize_words([text if text.strip() else ""], self.tokenizer)
        return ranked

    def wrap_tokens(self, ids: list[int]) -> WordTokens:
        """Every token is one word."""
        words = [f"#{token}" if self.tokenizer is None else self.tokenizer.decode([token]) for token in ids]
        return WordTokens(ids, words, list(range(len(ids))))


TextOrIds = str | Sequence[int]
"""A text, or its token ids."""


def predict(model: object, texts: TextOrIds | Sequence[TextOrIds], *, batch_size: int = 32) -> Any:
    """Predict the label of a text (classifier) or of each of its words (tagger).

        us.predict(model, "The soup was cold.").label

    A text is a string or a list of token ids; a list of texts returns a list of results. Texts of similar
    lengths are batched together, `batch_size` at a time. Words are separated by white space.
    """
    if not isinstance(model, (Classifier, Tagger)):
        named = f"a {type(model).__name__}" if isinstance(model, torch.nn.Module) else f"{model!r:.60}"
        raise TypeError(
            f"{named} does not predict labels: predict needs a classifier or tagger from us.train or "
            "us.load; use us.generate for models that generate text"
        )
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}, but must be a whole number of 1 or more")
    if isinstance(texts, bytes) or not isinstance(texts, Sequence):
        raise TypeError(f"texts is {texts!r:.60}, but must be a string, or a list of strings or token ids")
    # A list holds texts, not tokens, if its first item is a sequence or an array.
    alone = isinstance(texts, str) or (
        len(texts) > 0 and not isinstance(texts[0], Sequence) and getattr(texts[0], "ndim", 0) == 0
    )
    rows = model.read([texts] if alone else texts)  # type: ignore[list-item, arg-type]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place].ids))
    ranked: dict[int, Any] = {}
    for start in range(0, len(order), batch_size):
        these = order[start : start + batch_size]
        ranked |= zip(these, model.label([rows[place] for place in these]), strict=True)
    return ranked[0] if alone else [ranked[place] for place in range(len(rows))]
