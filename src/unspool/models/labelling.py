"""What classifiers and taggers share: their labels, and texts as they were trained to read them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Self, overload

import torch
from torch import Tensor, nn

from unspool.config import check_types
from unspool.errors import check_surrogates
from unspool.heads import HeadConfig, SoftmaxHeadConfig
from unspool.heads.kerbs import Kerbs
from unspool.interfaces import Abilities, AttentionStack
from unspool.models.encoders import EncoderConfig, TransformerEncoder
from unspool.models.model_config import at_least_one, given, shares
from unspool.models.sequence_model import decodes, unit_embedding
from unspool.models.sources import padded
from unspool.tokenization.tokenizer import Tokenizer
from unspool.tokenization.word_alignment import WordTokens, tokenize_words

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.interfaces import TokenizerLike


@dataclass(frozen=True)
class Prediction:
    """The most probable label, and how probable each one is."""

    label: str
    p: float
    """Of that label."""
    probabilities: Mapping[str, float]
    """Of every label, the most probable first."""


def ranked(logp_MK: Tensor, labels: Sequence[str]) -> list[Mapping[str, float]]:
    """For each row, the probability of every label, the most probable first."""
    if bool(logp_MK.isnan().any()):
        raise ValueError(
            "the model's probabilities are not numbers: its weights are damaged, or its training diverged"
        )
    p_MK, order_MK = logp_MK.double().exp().sort(dim=-1, descending=True, stable=True)
    rows = zip(p_MK.tolist(), order_MK.tolist(), strict=True)
    return [{labels[i]: p for p, i in zip(p_K, order_K, strict=True)} for p_K, order_K in rows]


def check_labels(labels: Sequence[str]) -> None:
    """Refuse labels that leave nothing to choose, or the same one twice."""
    if len(labels) < 2:
        raise ValueError(f"labels={list(labels)!r} leaves nothing to choose: give at least two labels")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if list(labels).count(label) > 1)
        raise ValueError(f"label {twice!r} is there twice: name each one once")


@dataclass(frozen=True, kw_only=True)
class LabellerConfig:
    """The shape of a model that chooses labels."""

    vocab_size: int
    labels: tuple[str, ...]
    """What it chooses from: target i is labels[i]."""
    encoder: EncoderConfig
    dropout: float = 0.0
    """In front of the head; the encoder has its own."""
    head: HeadConfig | None = None
    """How hidden vectors become probabilities; None is the plain softmax with a bias."""

    def __post_init__(self) -> None:
        check_types(self)
        at_least_one(self, "vocab_size")
        shares(self, "dropout")
        check_labels(self.labels)


class Labeller(nn.Module, Abilities):
    """An embedding, an encoder and a head over labels."""

    def __init__(self, config: LabellerConfig, text: TokenizerLike | None = None) -> None:
        super().__init__()
        given(config, LabellerConfig, text)
        c = self.config = config
        self.tokenizer = text
        self.embed = unit_embedding(c.vocab_size, c.encoder.width)
        self.encoder: Any = c.encoder.build(self.embed)
        self.dropout = nn.Dropout(c.dropout)
        head = c.head or SoftmaxHeadConfig(bias=True)
        self.head: Any = head.build(self.encoder.out_width, len(c.labels), None)

    @property
    def labels(self) -> tuple[str, ...]:
        """What it chooses from."""
        return self.config.labels

    @property
    def context(self) -> int | None:
        """The most tokens of a text; None: any number."""
        most: int | None = self.encoder.context
        return most

    @property
    def reads_bos(self) -> bool:
        """Texts are labelled without BOS."""
        return False

    @property
    def attention_reading(self) -> Self | None:
        """It can tell where its heads look, if it has any."""
        return self if isinstance(self.encoder, TransformerEncoder) else None

    @property
    def attention_heads(self) -> tuple[tuple[int, int], ...]:
        """The encoder's layers, and the heads in each."""
        shape: Any = self.config.encoder
        return ((shape.layers, shape.heads),)

    @property
    def sense_head(self) -> Kerbs | None:
        """Its head, where that is KerBS."""
        return self.head if isinstance(self.head, Kerbs) else None

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """What the head reads of every row, or of every token: a subclass says."""
        raise NotImplementedError

    def hidden_for(self, batch: Batch, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, U, D): the same of a batch."""
        raise NotImplementedError

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        """`hidden_for`, and where the heads of the encoder look."""
        attentions: list[Tensor] = []
        hidden_NUD = self.hidden_for(batch, attentions)
        return hidden_NUD, (AttentionStack(tuple(attentions), batch.lengths_N),)

    def encoded(self, tokens_NT: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None) -> Tensor:
        """(N, T, E): what the encoder says of every token; a recurrent one has no attention to tell of."""
        said: Tensor = (
            self.encoder(tokens_NT, lengths_N)
            if attentions is None
            else self.encoder(tokens_NT, lengths_N, attentions)
        )
        return said

    def forward(self, tokens_NT: Tensor, lengths_N: Tensor) -> Tensor:
        """(N, T) → (…, K): log p of every label, of every row or of every token."""
        logp: Tensor = self.head(self.hidden(tokens_NT, lengths_N))
        return logp

    def read(self, texts: Sequence[str | Sequence[int]]) -> list[WordTokens]:
        """Texts (strings, or token ids) as the model reads them; all are checked before any is labelled."""
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence) or not texts:
            raise ValueError(f"give a list of at least one text, not {texts!r:.40}")
        rows = [self._read(each, place) for place, each in enumerate(texts)]
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
        """Rows of any lengths as one batch (N, T), padded on the right, and their lengths (N)."""
        return padded([row.ids for row in rows], self.embed.weight.device)

    def of_string(self, text: str) -> WordTokens:
        """A text as tokens without BOS. A model of whole texts needs no words."""
        assert self.tokenizer is not None
        ids = self.tokenizer.encode(text) if text.strip() else []
        return self.of_tokens(ids[1:] if ids[:1] == [self.tokenizer.bos_id] else ids)

    def of_tokens(self, ids: list[int]) -> WordTokens:
        """The same of a text that is tokens already."""
        return WordTokens(ids, [], [])

    def _read(self, each: str | Sequence[int], place: int) -> WordTokens:
        if isinstance(each, str):
            if self.tokenizer is None:
                raise ValueError(f"text {place} is a string, but this model has no tokenizer: give token ids")
            return self.of_string(each)
        try:
            if isinstance(each, (bytes, bytearray)):
                raise TypeError("bytes are no token ids")
            ids = list(map(operator.index, each))
        except TypeError:
            raise TypeError(
                f"text {place} is {each!r:.40}, but must be a string or a list of token ids"
            ) from None
        return self.of_tokens(ids)


# A classifier: one label for a whole text.
#
#     V^n → K:   log p(label | x) = head(dropout(summary(encoder(x))))
#
# The summary is the mean of what a Transformer says about each token, and what each direction of a recurrent
# network says at its own end.


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(LabellerConfig):
    """The shape of a classifier."""

    def build(self, text: TokenizerLike | None = None) -> Classifier:
        """A model of this shape, with random weights."""
        return Classifier(self, text)


class Classifier(Labeller):
    """Reads a text and says how probable each label is."""

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, T) → (N, D): what the head reads of every row."""
        memory_NTD = self.encoded(tokens_NT, lengths_N, attentions)
        hidden: Tensor = self.dropout(self.encoder.summary(memory_NTD, lengths_N))
        return hidden

    def hidden_for(self, batch: Batch, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, 1, D)."""
        return self.hidden(batch.inputs_NT, batch.lengths_N, attentions).unsqueeze(1)

    @decodes
    def label(self, rows: Sequence[WordTokens]) -> list[Prediction]:
        """What each of some rows, all in one batch, is."""
        found = ranked(self(*self.inputs(rows)), self.labels)
        return [Prediction(*next(iter(each.items())), each) for each in found]

    def classify(self, texts: Sequence[str | Sequence[int]]) -> list[Prediction]:
        """The label of each text (a string, or token ids); all of them are one batch."""
        return self.label(self.read(texts))


# A tagger: one label for every word.
#
#     V^n → K^n:   log p(label_t | x) = head(dropout(encoder(x)_t))
#
# It says something of every token; a word is what its first token is, and words are what white space
# separates.


@dataclass(frozen=True, kw_only=True)
class TaggerConfig(LabellerConfig):
    """The shape of a tagger."""

    def build(self, text: TokenizerLike | None = None) -> Tagger:
        """A model of this shape, with random weights."""
        return Tagger(self, text)


@dataclass(frozen=True)
class TaggedWord(Prediction):
    """A word, its most probable label, and how probable each one is."""

    word: str


class Tagger(Labeller):
    """Reads a text and says, for each of its tokens, how probable each label is."""

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, T) → (N, T, D): what the head reads of every token."""
        hidden: Tensor = self.dropout(self.encoded(tokens_NT, lengths_N, attentions))
        return hidden

    def hidden_for(self, batch: Batch, attentions: list[Tensor] | None = None) -> Tensor:
        """(N, T, D)."""
        return self.hidden(batch.inputs_NT, batch.lengths_N, attentions)

    @decodes
    def label(self, rows: Sequence[WordTokens]) -> list[list[TaggedWord]]:
        """What each word of some rows, all in one batch, is: what its first token is."""
        logp_NTK = self(*self.inputs(rows))
        places = [(n, first) for n, row in enumerate(rows) for first in row.firsts]
        row_M, first_M = torch.tensor(places, device=logp_NTK.device).unbind(-1)
        found = iter(ranked(logp_NTK[row_M, first_M], self.labels))
        return [
            [
                TaggedWord(*next(iter(each.items())), each, word)
                for word, each in zip(row.words, islice(found, len(row.words)), strict=True)
            ]
            for row in rows
        ]

    def of_string(self, text: str) -> WordTokens:
        """A text's tokens without BOS, and its words."""
        if not isinstance(self.tokenizer, Tokenizer):
            raise TypeError(
                f"{type(self.tokenizer).__name__} does not say which characters a token spells: words "
                "cannot be found; give token ids, or build the model with an unspool.tokenization.Tokenizer"
            )
        check_surrogates(text, "the text")
        (found,) = tokenize_words([text if text.strip() else ""], self.tokenizer)
        return found

    def of_tokens(self, ids: list[int]) -> WordTokens:
        """Every token is a word of its own."""
        words = [f"#{token}" if self.tokenizer is None else self.tokenizer.decode([token]) for token in ids]
        return WordTokens(ids, words, list(range(len(ids))))

    def tag(self, texts: Sequence[str | Sequence[int]]) -> list[list[TaggedWord]]:
        """The label of each word of each text (a string, or token ids); all of them are one batch."""
        return self.label(self.read(texts))


# What classifiers and taggers are for: labels of texts, and how probable they are.
#
#     us.predict(model, "The soup was cold.").label
#
# Texts of like lengths are read together, so that little is spent on padding; the answers come in the order
# of the texts.


Given = str | Sequence[int]
"""A text, or its token ids."""


@overload
def predict(  # type: ignore[overload-overlap]  # a string is a sequence of strings, too
    model: Classifier, texts: Given, *, batch_size: int = 32
) -> Prediction: ...


@overload
def predict(model: Classifier, texts: Sequence[Given], *, batch_size: int = 32) -> list[Prediction]: ...


@overload
def predict(  # type: ignore[overload-overlap]
    model: Tagger, texts: Given, *, batch_size: int = 32
) -> list[TaggedWord]: ...


@overload
def predict(model: Tagger, texts: Sequence[Given], *, batch_size: int = 32) -> list[list[TaggedWord]]: ...


@overload
def predict(model: object, texts: Given | Sequence[Given], *, batch_size: int = 32) -> Any: ...


def predict(model: object, texts: Given | Sequence[Given], *, batch_size: int = 32) -> Any:
    """The label of a text, by a classifier, or of each of its words, by a tagger.

    A text is a string, or a list of token ids; several of them, `batch_size` at a time, give a list of what
    one gives. Words are what white space separates, whatever the model's tokens are.
    """
    if not isinstance(model, (Classifier, Tagger)):
        named = f"a {type(model).__name__}" if isinstance(model, torch.nn.Module) else f"{model!r:.60}"
        raise TypeError(
            f"{named} chooses no labels: predict takes a classifier or a tagger, as us.train and "
            "us.load give them; us.generate takes models that say text"
        )
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is {batch_size!r}, but must be a whole number of 1 or more")
    alone = isinstance(texts, str) or (len(_listed(texts)) > 0 and not _is_text(texts[0]))
    rows = model.read([texts] if alone else texts)  # type: ignore[list-item, arg-type]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place].ids))
    found: dict[int, Any] = {}
    for start in range(0, len(order), batch_size):
        these = order[start : start + batch_size]
        found |= zip(these, model.label([rows[place] for place in these]), strict=True)
    return found[0] if alone else [found[place] for place in range(len(rows))]


def _listed(texts: Any) -> Any:
    if isinstance(texts, bytes) or not isinstance(texts, Sequence):
        raise TypeError(f"texts is {texts!r:.60}, but must be a string, or a list of strings or token ids")
    return texts


def _is_text(each: object) -> bool:
    """Whether it is one text of a list, and not one token of a text."""
    return isinstance(each, Sequence) or getattr(each, "ndim", 0) > 0
