"""MAUVE: how near the texts of a decoder are to those of people, in what they say and in how they vary.

    R_λ = λP + (1 − λ)Q;   C = { (e^(−c·KL(Q‖R_λ)), e^(−c·KL(P‖R_λ))) : 0 < λ < 1 };   MAUVE = area under C

Pillutla et al. 2021, §2–3. papers.bib: pillutla2021mauve

P and Q are histograms of human and of generated texts over clusters (k-means) of their features: here the
hidden state that a model of ours has after the last token. 1 is the same, 0 nothing in common.

Symbols: P is `human`, Q `generated`, c `scaling`.
Differs from the paper: any model gives the features, not GPT-2 large. Values of different models, of
different numbers of texts and of different lengths do not compare. The clusters and the area are the authors'
own package, mauve-text (its licence is the GPL: it is installed only where asked for). Version 0.4 of it says
0.75 of two equal histograms, whose curve is a single point; here they are the same, 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from unspool.decode.arguments import as_matrix, as_number, as_whole
from unspool.decode.combine.lockstep import check_model
from unspool.evaluate.teacher_forcing import token_ids
from unspool.protocols import StepModel


@dataclass(frozen=True)
class Mauve:
    """How near two sets of texts are."""

    value: float
    """The area: 0 nothing in common, 1 the same."""
    smoothed: float
    """The same of histograms smoothed for small samples (MAUVE*)."""
    frontier_integral: float
    """A divergence, without the scaling: 0 the same."""
    clusters: int


def features(model: StepModel, texts: Sequence[str | Sequence[int]], *, batch: int = 8) -> Tensor:
    """(N, D): what the model's head reads after the last token of each text (a string, or token ids)."""
    check_model(model)
    if model.answers:
        raise ValueError(
            "the model is an encoder–decoder, whose hidden states are about an answer and not about a text. "
            "Use a language model for features."
        )
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence) or not texts:
        raise ValueError(f"texts is {texts!r:.60}, but must be a list of one text or more.")
    rows = [token_ids(model, text, place) for place, text in enumerate(texts)]
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
) -> Mauve:
    """Compare two sets of features; by default with a cluster for every ten texts of the smaller set."""
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
    with _few_texts_a_cluster():
        found = compute_mauve(
            p_features=human_ND.numpy(),
            q_features=generated_MD.numpy(),
            num_buckets=clusters,
            mauve_scaling_factor=scaling,
            seed=seed,
            verbose=False,
        )
    if (found.p_hist == found.q_hist).all():
        return Mauve(1.0, 1.0, 0.0, clusters)
    return Mauve(float(found.mauve), float(found.mauve_star), float(found.frontier_integral), clusters)


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
