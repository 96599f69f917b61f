"""What classifiers and taggers share: their labels, and texts as they were trained to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from unspool.heads import HeadConfig, SoftmaxHead
from unspool.models.checks import at_least_one, shares
from unspool.models.encoders import EncoderConfig
from unspool.models.sources import padded

if TYPE_CHECKING:
    from unspool.protocols import Text


@dataclass(frozen=True)
class Labelled:
    """A label, and how sure the model is."""

    label: str
    p: float

    @classmethod
    def best(cls, logp_K: Tensor, labels: Sequence[str]) -> Labelled:
        """The most probable one."""
        logp, place = logp_K.max(dim=-1)
        return cls(labels[int(place)], float(logp.exp()))


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
        at_least_one(self, "vocab_size")
        shares(self, "dropout")
        check_labels(self.labels)


class Labeller(nn.Module):
    """An embedding, an encoder and a head over labels."""

    def __init__(self, config: LabellerConfig, text: Text | None = None) -> None:
        super().__init__()
        c = self.config = config
        self.text = text
        self.embed = nn.Embedding(c.vocab_size, c.encoder.width)
        nn.init.normal_(self.embed.weight, std=c.encoder.width**-0.5)
        self.encoder: Any = c.encoder.build(self.embed)
        self.dropout = nn.Dropout(c.dropout)
        head = c.head or SoftmaxHead(bias=True)
        self.head: Any = head.build(self.encoder.out_width, len(c.labels), None)


def inputs(
    texts: Sequence[str | Sequence[int]], text: Text | None, embed: nn.Embedding
) -> tuple[Tensor, Tensor]:
    """Texts of any lengths as one batch (N, T), padded on the right, and their lengths (N)."""
    if isinstance(texts, str) or not texts:
        raise ValueError(f"give a list of at least one text, not {texts!r:.40}")
    rows = [_ids(each, text, place) for place, each in enumerate(texts)]
    for place, row in enumerate(rows):
        if not row:
            raise ValueError(f"text {place} is empty: there is nothing to label")
        if not 0 <= min(row) <= max(row) < embed.num_embeddings:
            raise ValueError(
                f"text {place} holds a token outside the model's vocabulary 0…{embed.num_embeddings - 1}"
            )
    return padded(rows, embed.weight.device)


def _ids(each: str | Sequence[int], text: Text | None, place: int) -> list[int]:
    if not isinstance(each, str):
        return list(each)
    if text is None:
        raise ValueError(f"text {place} is a string, but this model has no tokenizer: give token ids")
    ids = text.encode(each)
    return ids[1:] if ids[:1] == [text.bos_id] else ids
