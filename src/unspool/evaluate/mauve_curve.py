"""MAUVE: how near the texts of a decoder are to those of people, in what they say and in how they vary.

    R_λ = λP + (1 − λ)Q;   C = { (e^(−c·KL(Q‖R_λ)), e^(−c·KL(P‖R_λ))) : 0 < λ < 1 };   MAUVE = area under C

Pillutla et al. 2021, §2–3. papers.bib: pillutla2021mauve

P and Q are histograms of human and of generated texts over clusters (k-means) of their features: here the
hidden state that a model of ours has after the last token. 1 is the same, 0 nothing in common.

Symbols: P is `human`, Q `generated`, c `scaling`. MAUVE of few texts is mostly noise, and k-means finds
other clusters from other starts: fewer than LEAST_TEXTS texts of a kind are refused, and the value is the
mean over several clusterings, with their range. `text_mauve` cuts all texts to one length.

Differs from the paper: any model gives the features, not GPT-2 large. Values of different models, of
different numbers of texts and of different lengths do not compare. The clusters and the area are the authors'
own package, mauve-text (its licence is the GPL: it is installed only where asked for). Version 0.4 of it says
0.75 of two equal histograms, whose curve is a single point; here they are the same, 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import as_matrix, as_number, as_whole
from unspool.decode.combine.lockstep import check_model
from unspool.evaluate.teacher_forcing import token_ids
from unspool.interfaces import StepModel

LEAST_TEXTS = 300
CLUSTERINGS = 5


@dataclass(frozen=True)
class Mauve:
    """How near two sets of texts are: means over several clusterings."""

    value: float
    """The area: 0 nothing in common, 1 the same."""
    smoothed: float
    """The same of histograms smoothed for small samples (MAUVE*)."""
    frontier_integral: float
    """A divergence, without the scaling: 0 the same."""
    clusters: int
    by_clustering: tuple[float, ...]
    """The area with each clustering."""
    texts: tuple[int, int]
    """How many human and generated texts were compared."""
    length: int | None = None
    """The tokens of every text, where all were cut to one length."""

    @property
    def low(self) -> float:
        """The smallest area of a clustering."""
        return min(self.by_clustering)

    @property
    def high(self) -> float:
        """The largest area of a clustering."""
        return max(self.by_clustering)

    def __str__(self) -> str:
        """What was compared, and how."""
        cut = "" if self.length is None else f", each cut to {self.length} tokens"
        return (
            f"{self.texts[0]} human and {self.texts[1]} generated texts{cut}; {self.clusters} clusters; "
            f"mean and range over {len(self.by_clustering)} clusterings"
        )


def text_mauve(
    model: StepModel,
    human: Sequence[str | Sequence[int]],
    generated: Sequence[str | Sequence[int]],
    *,
    length: int | None = None,
    seed: int = 25,
    clusterings: int = CLUSTERINGS,
    least: int = LEAST_TEXTS,
) -> Mauve:
    """MAUVE of texts that are all cut to `length` tokens; shorter ones are left out.

    Without `length` it is `common_length` of both sets. The other arguments are those of `mauve`.
    """
    shortest = common_length(model, human, generated)
    length = shortest if length is None else length
    length = as_whole("length", length, at_least=1, advice="It counts the tokens of a text.")
    least = as_whole("least", least, at_least=1, advice="MAUVE of few texts is mostly noise.")
    found = []
    for name, texts in {"human": human, "generated": generated}.items():
        rows = [row[:length] for row in _rows(model, texts) if len(row) >= length]
        _enough(name, len(rows), least, f" of at least {length} tokens")
        found.append(features(model, rows))
    return replace(mauve(*found, seed=seed, clusterings=clusterings, least=least), length=length)


def common_length(model: StepModel, *sets: Sequence[str | Sequence[int]]) -> int:
    """The number of tokens that at least nine of ten texts of every set have."""
    check_model(model)
    shortest = []
    for texts in sets:
        lengths = sorted(len(row) for row in _rows(model, texts))
        shortest.append(lengths[len(lengths) // 10])
    return max(1, min(*shortest, model.context or shortest[0]))


def _rows(model: StepModel, texts: Sequence[str | Sequence[int]]) -> list[tuple[int, ...]]:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence) or not texts:
        raise ValueError(f"texts is {texts!r:.60}, but must be a list of one text or more.")
    return [token_ids(model, text, place) for place, text in enumerate(texts)]


def _enough(name: str, count: int, least: int, of: str = "") -> None:
    if count < least:
        raise ValueError(
            f"there are {count} {name} texts{of}, and MAUVE of fewer than {least} is mostly noise: "
            "give more, or set least"
        )


def features(model: StepModel, texts: Sequence[str | Sequence[int]], *, batch: int = 8) -> Tensor:
    """(N, D): what the model's head reads after the last token of each text (a string, or token ids)."""
    check_model(model)
    if model.is_encoder_decoder:
        raise ValueError(
            "the model is an encoder–decoder, whose hidden states are about an answer and not about a text. "
            "Use a language model for features."
        )
    rows = _rows(model, texts)
    for place, row in enumerate(rows):
        if not row:
            raise ValueError(f"text {place} is empty, and none may be: leave it out.")
        if model.context is not None and len(row) > model.context:
            raise ValueError(
                f"text {place} has {len(row)} tokens, and the model reads at most {model.context}: cut all "
                "texts to one length, for MAUVE compares only texts of like lengths."
            )
    batch = as_whole("batch", batch, at_least=1, advice="It is how many texts are read side by side.")
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    found: dict[int, Tensor] = {}
    for start in range(0, len(rows), batch):
        these = order[start : start + batch]
        step, _ = model.start([rows[i] for i in these])
        if step.hidden_ND is None:
            raise ValueError(
                f"{type(model).__name__} does not show its hidden states, which are the features of a text. "
                "Use a model from unspool.load."
            )
        found |= dict(zip(these, step.hidden_ND.float().cpu(), strict=True))
    return torch.stack([found[i] for i in range(len(rows))])


def mauve(
    human_ND: Tensor,
    generated_MD: Tensor,
    *,
    clusters: int | None = None,
    scaling: float = 5.0,
    seed: int = 25,
    clusterings: int = CLUSTERINGS,
    least: int = LEAST_TEXTS,
) -> Mauve:
    """Compare two sets of features; by default with a cluster for every ten texts of the smaller set.

    Clusters are found `clusterings` times, from `seed` on. Fewer than `least` texts of a kind are refused.
    """
    for name, given in {"human": human_ND, "generated": generated_MD}.items():
        if not bool(as_matrix(name, given, "(texts, width)").double().square().sum().isfinite()):
            raise ValueError(f"{name} holds NaN, infinite or huge entries, which have no distances.")
    scaling = as_number("scaling", scaling, above=0, advice="The authors' is 5.")
    seed = as_whole("seed", seed, at_least=0, advice="It is what the clusters begin from.")
    if human_ND.shape[1] != generated_MD.shape[1]:
        raise ValueError(
            f"the features have shapes {tuple(human_ND.shape)} and {tuple(generated_MD.shape)}, but must be "
            "(texts, width) with the same width: take both from the same model."
        )
    clusterings = as_whole("clusterings", clusterings, at_least=1, advice="5 show the spread.")
    least = as_whole("least", least, at_least=1, advice="MAUVE of few texts is mostly noise.")
    _enough("human", len(human_ND), least)
    _enough("generated", len(generated_MD), least)
    smaller = min(len(human_ND), len(generated_MD))
    if clusters is None:
        clusters = max(2, round(smaller / 10))
    clusters = as_whole("clusters", clusters, at_least=2, advice="One for every ten texts is usual.")
    if clusters > smaller:
        raise ValueError(f"clusters is {clusters}, but must be 2 … {smaller}, the texts of the smaller set.")
    try:
        from mauve import compute_mauve
    except ImportError as error:
        raise ImportError("MAUVE needs the package mauve-text: pip install 'unspool[mauve]'") from error
    found = []
    with _few_texts_a_cluster():
        for each in range(seed, seed + clusterings):
            one = compute_mauve(
                p_features=human_ND.numpy(),
                q_features=generated_MD.numpy(),
                num_buckets=clusters,
                mauve_scaling_factor=scaling,
                seed=each,
                verbose=False,
            )
            is_same = (one.p_hist == one.q_hist).all()
            found.append((1.0, 1.0, 0.0) if is_same else (one.mauve, one.mauve_star, one.frontier_integral))
    value, smoothed, integral = (sum(map(float, column)) / clusterings for column in zip(*found, strict=True))
    areas = tuple(float(area) for area, _, _ in found)
    return Mauve(value, smoothed, integral, clusters, areas, (len(human_ND), len(generated_MD)))


@contextmanager
def _few_texts_a_cluster() -> Iterator[None]:
    """Without faiss's warning of fewer than 39 points a cluster, where ten are the rule.

    It is written to the process's standard error, where no filter of Python's reaches it. What is computed
    stays the same.
    """
    module: Any = sys.modules.get("mauve.compute_mauve")
    faiss = getattr(module, "faiss", None)
    if faiss is None:
        yield
        return
    module.faiss = SimpleNamespace(Kmeans=partial(faiss.Kmeans, min_points_per_centroid=1))
    try:
        yield
    finally:
        module.faiss = faiss
