"""Claim: log-probabilities of a softmax of width d have rank d + 1 at most, which bounds the error.

    A′ = log softmax(W H) = W H − 1·log Σ exp(W H):   rank A′ ≤ d + 1
    ‖A − A′‖_F ≥ √(Σ_{i > d+1} σᵢ(A)²)                Eckart & Young

Finlayson et al. 2024, §2 (papers.bib: finlayson2024closing); Yang et al. 2018 (papers.bib: yang2018breaking).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from unspool.data.known_languages import SenseChain
from unspool.data.known_languages.known_language import TrueModel
from unspool.diagnose.softmax_bottleneck import least_error, log_probabilities, smoothed, spectrum
from unspool.evaluate.teacher_forcing import windows
from unspool.lab.claim import Claim, Numbers, Progress, degeneration, tracked
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.plots.seeds import chart, lines

WIDTHS, CONTEXTS, SHARE = (4, 8, 16), 220, 1e-6
WORDS = 80


def models(seed: int, width: int, updates: int) -> dict[str, Any]:
    """Return an RNN and a Transformer with a softmax, and one with a mixture of two."""
    data = language("senses", seed, 3000, word_count=WORDS)
    rnn: dict[str, Any] = {"kind": "rnn_lm", "cell": "gru", "width": width, "tied": False}
    transformer = {**TRANSFORMER_LM, "width": width, "heads": 2, "layers": 1, "tied": False}
    shapes = {
        "recurrent": {**rnn, "head": {"kind": "softmax"}},
        "Transformer": {**transformer, "head": {"kind": "softmax"}},
        "mixture of softmaxes": {**rnn, "head": {"kind": "mixture"}},
    }
    return {name: train_model(data, shape, updates, seed, lr=1e-2) for name, shape in shapes.items()}


@torch.no_grad()
def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure three widths of three kinds of models on the same contexts."""
    truth, rng = SenseChain(word_count=WORDS), Random(seed)
    rows: list[tuple[int, ...]] = []
    while sum(len(row) for row in rows) < 2 * CONTEXTS:
        rows.append((truth.bos, *truth.sample(rng), truth.eos))
    parts = windows(rows)
    matrix = smoothed(log_probabilities(TrueModel(truth), parts, CONTEXTS).double().exp(), SHARE)
    found: dict[str, Any] = {"rank of the truth": spectrum(matrix.float()).rank}
    curves: dict[str, list[float]] = {"least": [], "achieved": []}
    for width in tracked(WIDTHS, progress):
        with torch.enable_grad():
            made = models(seed, width, 20 if quick else 150)
        for name, model in made.items():
            logp = log_probabilities(model, parts, CONTEXTS)
            found[f"{name}, d = {width}: rank"] = spectrum(logp, model.output_matrix).rank
            if name == "recurrent":
                curves["least"].append(least_error(matrix, width + 1))
                curves["achieved"].append(float((matrix - logp.double()).norm()))
    for width, least, achieved in zip(WIDTHS, *curves.values(), strict=True):
        found |= {f"least error, d = {width}": least, f"error, d = {width}": achieved}
    return {**found, "width": list(map(float, WIDTHS)), **curves}


def draw(figure: Any, runs: Sequence[Numbers]) -> None:
    """Draw ranks and errors by width."""
    kinds = ("recurrent", "Transformer", "mixture of softmaxes")
    bound = {"d + 1": [width + 1.0 for width in WIDTHS]}
    curves = [
        {**run, **bound, **{kind: [run[f"{kind}, d = {width}: rank"] for width in WIDTHS] for kind in kinds}}
        for run in runs
    ]
    errors = {"achieved": "of the model", "least": "no matrix of rank d + 1 has less"}
    chart(
        lines("width", {it: it for it in (*kinds, *bound)}, "d", "rank of log p", ylim=(0, None)),
        lines("width", errors, "d", "‖A − A′‖", ylim=(0, None)),
    )(figure, curves)


CLAIM = Claim(
    name="bottleneck_rank",
    statement="Log-probabilities of a softmax of width d have rank d + 1 at most, so the distance "
    "to the truth is at least the norm of its other singular values (Eckart–Young).",
    source=degeneration(
        "the softmax bottleneck, equations 1 and 2", "eckart1936approximation", "yang2018breaking"
    ),
    measured="An artificial language of 80 words with several senses each, whose truth is known. Recurrent "
    "models and Transformers of width 4, 8 and 16, and as many mixtures of two softmaxes, are trained; the "
    "numerical rank of their log-probabilities over 220 contexts, and their distance from the truth "
    "(impossible words get 1e-6).",
    criterion={
        "no softmax exceeds rank d + 1": lambda n: all(
            n[f"{kind}, d = {w}: rank"] <= w + 1 for kind in ("recurrent", "Transformer") for w in WIDTHS
        ),
        "the truth does, and so does a mixture of softmaxes, at every width": lambda n: (
            n["rank of the truth"] > 17
            and all(n[f"mixture of softmaxes, d = {w}: rank"] > w + 1 for w in WIDTHS)
        ),
        "no model is nearer to the truth than Eckart–Young allows": lambda n: all(
            a >= b for a, b in zip(n["achieved"], n["least"], strict=True)
        ),
    },
    measure=measure,
    draw=draw,
)
