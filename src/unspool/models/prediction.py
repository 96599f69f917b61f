"""What classifiers and taggers are for: labels of texts, and how probable they are.

    us.predict(model, "The soup was cold.").label

Texts of like lengths are read together, so that little is spent on padding; the answers come in the order of
the texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from unspool.models.classifier import Classifier
from unspool.models.labels import Prediction
from unspool.models.tagger import TaggedWord, Tagger

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
        named = f"a {type(model).__name__}" if "\n" in repr(model) else f"{model!r:.60}"  # a module's is long
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
