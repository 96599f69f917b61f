"""What classifiers and taggers share: their labels, and texts as they were trained to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

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
