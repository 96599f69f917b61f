"""MAUVE: the distance between generated and human texts, in quality and diversity.

    R_λ = λP + (1 − λ)Q;   C = { (e^(−c·KL(Q‖R_λ)), e^(−c·KL(P‖R_λ))) : 0 < λ < 1 };   MAUVE = area under C

Pillutla et al. 2021, §2–3. papers.bib: pillutla2021mauve

P and Q are histograms of human and generated texts over k-means clusters of their features: the hidden
state of a model after the last token. 1 means equal, 0 nothing in common.

Symbols: P is `human`, Q `generated`, c `SCALING`. MAUVE of few texts is mostly noise, and k-means
depends on its seed. So at least MIN_TEXTS texts of each kind are needed, and the value is the mean over
several clusterings, with their range. `text_mauve` cuts all texts to one length.

Differs from the paper: any model gives the features, not only GPT-2 large. Compare values only for the same
model, number of texts and length. The authors' package mauve-text computes clusters and area; it is an
optional dependency because of its licence (GPL). Its version 0.4 returns 0.75 for equal histograms, whose
curve is a single point; here the value is 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from unspool.arguments import as_int, as_matrix
from unspool.decode.lockstep import check_model
from unspool.evaluate.diversity import check_texts
from unspool.evaluate.teacher_forcing import token_ids
from unspool.interfaces import StepModel
from unspool.lazy import import_optional

MIN_TEXTS = 300
CLUSTERINGS = 5
SCALING = 5.0


@dataclass(frozen=True)
class Mauve:
    """MAUVE of two sets of texts: means over several clusterings."""

    value: float
    """Area under the curve: 0 nothing in common, 1 equal."""
    smoothed: float
    """Area for histograms smoothed for small samples (MAUVE*)."""
    clusters: int
    by_clustering: tuple[float, ...]
    texts: tuple[int, int]
    """Number of human and of generated texts."""
    length: int | None = None
    """Tokens per text, if all were cut to one length."""

    def __str__(self) -> str:
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
    min_texts: int = MIN_TEXTS,
) -> Mauve:
    """Compute MAUVE of texts cut to `length` tokens (default: `common_length`), without shorter texts."""
    shortest = common_length(model, human, generated)
    length = shortest if length is None else length
    length = as_int("length", length, at_least=1, advice="It counts the tokens of a text.")
    min_texts = as_int("min_texts", min_texts, at_least=1, advice="MAUVE of few texts is mostly noise.")
    results = []
    for name, texts in {"human": human, "generated": generated}.items():
        rows = [row[:length] for row in _rows(model, texts) if len(row) >= length]
        _check_count(name, len(rows), min_texts, f" of at least {length} tokens")
        results.append(features(model, rows))
    return replace(mauve(*results, min_texts=min_texts), length=length)


def common_length(model: StepModel, *sets: Sequence[str | Sequence[int]]) -> int:
    """Return a length that at least nine of ten texts of every set have."""
    check_model(model)
    shortest = []
    for texts in sets:
        lengths = sorted(len(row) for row in _rows(model, texts))
        shortest.append(lengths[len(lengths) // 10])
    return max(1, min(*shortest, model.context or shortest[0]))


def _rows(model: StepModel, texts: Sequence[str | Sequence[int]]) -> list[tuple[int, ...]]:
    check_texts(texts)
    return [token_ids(model, text, index) for index, text in enumerate(texts)]


def _check_count(name: str, count: int, min_texts: int, of: str = "") -> None:
    if count < min_texts:
        raise ValueError(
            f"MAUVE needs at least {min_texts} {name} texts{of}, found {count}: "
            "give more texts or set min_texts"
        )


def features(model: StepModel, texts: Sequence[str | Sequence[int]], *, batch: int = 8) -> Tensor:
    """Return the hidden state after the last token of each text (a string or token ids): (N, D)."""
    check_model(model)
    if model.is_encoder_decoder:
        raise ValueError("features need a language model, not an encoder–decoder")
    rows = _rows(model, texts)
    for index, row in enumerate(rows):
        if not row:
            raise ValueError(f"text {index} is empty: leave it out")
        if model.context is not None and len(row) > model.context:
            raise ValueError(
                f"text {index} has {len(row)} tokens but the context is {model.context}: cut all texts"
                " to one length"
            )
    batch = as_int("batch", batch, at_least=1, advice="It is the number of texts per batch.")
    results = []
    for start in range(0, len(rows), batch):
        step, _ = model.start(rows[start : start + batch])
        if step.hidden_ND is None:
            raise ValueError(
                f"{type(model).__name__} does not return hidden states: use a model from unspool.load"
            )
        results.append(step.hidden_ND.float().cpu())
    return torch.cat(results)


def mauve(
    human_ND: Tensor,
    generated_MD: Tensor,
    *,
    clusters: int | None = None,
    seed: int = 25,
    clusterings: int = CLUSTERINGS,
    min_texts: int = MIN_TEXTS,
) -> Mauve:
    """Compute MAUVE of two sets of features; by default with one cluster per ten texts of the smaller set.

    k-means runs `clusterings` times, with seeds from `seed` on. Each set needs at least `min_texts` texts.
    """
    for name, features_ND in {"human": human_ND, "generated": generated_MD}.items():
        if not bool(as_matrix(name, features_ND, "(texts, width)").double().square().sum().isfinite()):
            raise ValueError(f"{name} contains NaN, infinite or huge entries")
    seed = as_int("seed", seed, at_least=0, advice="It is the seed of k-means.")
    if human_ND.shape[1] != generated_MD.shape[1]:
        raise ValueError(
            f"the features have shapes {tuple(human_ND.shape)} and {tuple(generated_MD.shape)}, but must "
            "have the same width: take both from the same model"
        )
    clusterings = as_int("clusterings", clusterings, at_least=1, advice="5 is usual.")
    min_texts = as_int("min_texts", min_texts, at_least=1, advice="MAUVE of few texts is mostly noise.")
    _check_count("human", len(human_ND), min_texts)
    _check_count("generated", len(generated_MD), min_texts)
    smaller = min(len(human_ND), len(generated_MD))
    if clusters is None:
        clusters = max(2, round(smaller / 10))
    clusters = as_int("clusters", clusters, at_least=2, advice="One for every ten texts is usual.")
    if clusters > smaller:
        raise ValueError(f"clusters is {clusters}, but must be 2 … {smaller}, the size of the smaller set")
    compute_mauve = import_optional("mauve", "MAUVE", "mauve-text", "mauve").compute_mauve
    results = []
    with _allow_small_clusters():
        for clustering_seed in range(seed, seed + clusterings):
            result = compute_mauve(
                p_features=human_ND.numpy(),
                q_features=generated_MD.numpy(),
                num_buckets=clusters,
                mauve_scaling_factor=SCALING,
                seed=clustering_seed,
                verbose=False,
            )
            is_same = (result.p_hist == result.q_hist).all()
            results.append((1.0, 1.0) if is_same else (float(result.mauve), float(result.mauve_star)))
    areas, smoothed = zip(*results, strict=True)
    return Mauve(*(fmean(areas), fmean(smoothed), clusters, areas), texts=(len(human_ND), len(generated_MD)))


@contextmanager
def _allow_small_clusters() -> Iterator[None]:
    """Silence faiss's warning about fewer than 39 points per cluster; MAUVE uses ten.

    faiss writes it to standard error, so Python's warning filters cannot suppress it.
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
