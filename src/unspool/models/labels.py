"""What classifiers and taggers share: their labels, and texts as they were trained to read them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor, nn

from unspool.config import typed
from unspool.heads import HeadConfig, SoftmaxHeadConfig
from unspool.heads.kerbs import Kerbs
from unspool.models.encoders import EncoderConfig, TransformerEncoder
from unspool.models.sequence_model import unit_embedding
from unspool.models.shape_checks import at_least_one, given, shares
from unspool.models.sources import padded
from unspool.protocols import Abilities, AttentionStack
from unspool.text.word_tokens import WordTokens

if TYPE_CHECKING:
    from unspool.data.batch import Batch
    from unspool.protocols import Text


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
        typed(self)
        at_least_one(self, "vocab_size")
        shares(self, "dropout")
        check_labels(self.labels)


class Labeller(nn.Module, Abilities):
    """An embedding, an encoder and a head over labels."""

    def __init__(self, config: LabellerConfig, text: Text | None = None) -> None:
        super().__init__()
        given(config, LabellerConfig, text)
        c = self.config = config
        self.text = text
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

    def hidden(self, tokens_NT: Tensor, lengths_N: Tensor, looks: list[Tensor] | None = None) -> Tensor:
        """What the head reads of every row, or of every token: a subclass says."""
        raise NotImplementedError

    def hidden_for(self, batch: Batch, looks: list[Tensor] | None = None) -> Tensor:
        """(N, U, D): the same of a batch."""
        raise NotImplementedError

    def read_attention(self, batch: Batch) -> tuple[Tensor, tuple[AttentionStack, ...]]:
        """`hidden_for`, and where the heads of the encoder look."""
        looks: list[Tensor] = []
        hidden_NUD = self.hidden_for(batch, looks)
        return hidden_NUD, (AttentionStack(tuple(looks), batch.lengths_N),)

    def encoded(self, tokens_NT: Tensor, lengths_N: Tensor, looks: list[Tensor] | None) -> Tensor:
        """(N, T, E): what the encoder says of every token; a recurrent one has no attention to tell of."""
        said: Tensor = (
            self.encoder(tokens_NT, lengths_N) if looks is None else self.encoder(tokens_NT, lengths_N, looks)
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
        assert self.text is not None
        ids = self.text.encode(text) if text.strip() else []
        return self.of_tokens(ids[1:] if ids[:1] == [self.text.bos_id] else ids)

    def of_tokens(self, ids: list[int]) -> WordTokens:
        """The same of a text that is tokens already."""
        return WordTokens(ids, [], [])

    def _read(self, each: str | Sequence[int], place: int) -> WordTokens:
        if isinstance(each, str):
            if self.text is None:
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
