"""Claim: a threshold above 1 − e^(−δ) keeps only possible tokens.

    log p* − log p̂ ≤ δ everywhere  ⇒  p̂ − p* ≤ 1 − e^(−δ) = τ  ⇒  (p̂ᵢ > τ ⇒ p*ᵢ > 0)

Finlayson et al. 2024, §3, Theorem 1 and Corollary 1 (papers.bib: finlayson2024closing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from unspool.data.known_languages import ZipfMarkov
from unspool.diagnose.overestimation import failures, underestimation
from unspool.lab.claim import Claim, Numbers, Progress, degeneration
from unspool.lab.small_models import Lesson, sample_contexts, train_narrow
from unspool.plots.canvas import RED
from unspool.plots.seeds import lines

TAUS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6)


@torch.no_grad()
def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure a model with a softmax of width 8, with δ of each context."""
    language = ZipfMarkov(word_count=100, branching=12, seed=seed)
    lesson = Lesson(3000, 60 if quick else 600, 512, seed)
    with torch.enable_grad():
        model = train_narrow(language, 8, lesson)
    progress(0.8)
    context_C2 = sample_contexts(language, 60 if quick else 400, seed)
    true_CV, logp_CV = torch.from_numpy(language.rows(context_C2.numpy())), model(context_C2)
    kept = impossible = tenth_impossible = 0
    recall = worst = 0.0
    for true_V, logp_V in zip(true_CV[:, None], logp_CV[:, None], strict=True):
        tau = underestimation(logp_V, true_V).tau
        worst = max(worst, underestimation(logp_V, true_V).overestimation - tau)
        found = failures(logp_V, true_V, min(tau, 1 - 1e-12))
        kept, impossible = kept + found.kept, impossible + found.impossible
        recall += float(true_V[logp_V.double().exp() > tau].sum()) / len(true_CV)
        tenth_impossible += failures(logp_V, true_V, tau / 10).impossible
    whole = underestimation(logp_CV, true_CV)
    at = [failures(logp_CV, true_CV, tau) for tau in TAUS]
    return {
        "δ, the largest anywhere": whole.delta,
        "δ of a context, median": whole.quantiles[0.5],
        "τ = 1 − e^(−δ), of the median δ": 1 - float(torch.tensor(-whole.quantiles[0.5]).exp()),
        "largest overestimation beyond its context's τ": worst,
        "kept above τ": kept,
        "impossible among them": impossible,
        "impossible above τ / 10": tenth_impossible,
        "of the truth's mass, still possible above τ": recall,
        "threshold": list(TAUS),
        "share": [it.share for it in at],
        "mass": [it.mass for it in at],
    }


def draw(figure: Any, runs: Sequence[Numbers]) -> None:
    """Draw the impossible tokens by threshold, and the threshold of the median δ."""
    axes = figure.subplots()
    names = {"share": "of the tokens kept", "mass": "of the probability kept"}
    xlabel = "a fixed threshold (dotted: τ of the median δ)"
    lines("threshold", names, xlabel, "impossible", xscale="log")(axes, runs)
    for run in runs:
        axes.axvline(run["τ = 1 − e^(−δ), of the median δ"], color=RED, alpha=0.5, linestyle=":")


CLAIM = Claim(
    name="safe_threshold",
    statement="Truncation at a threshold above 1 − e^(−δ) samples only tokens that are truly possible, "
    "where δ bounds how far log-probabilities are underestimated.",
    source=degeneration("Theorem 1 and Corollary 1"),
    measured="A trigram model with a softmax of width 8 learns an artificial language of 100 words whose "
    "truth is known. For each of 400 contexts, δ is computed, and the tokens above τ = 1 − e^(−δ) are "
    "compared with the possible ones.",
    criterion={
        "there are tokens above their context's τ, and none of them is impossible": lambda n: (
            n["kept above τ"] > 0 and n["impossible among them"] == 0
        ),
        "no probability is overestimated by more than its context's τ (1e-6)": lambda n: (
            n["largest overestimation beyond its context's τ"] <= 1e-6
        ),
        "it is the threshold that does it: above τ / 10, impossible tokens are kept": lambda n: (
            n["impossible above τ / 10"] > 0
        ),
    },
    measure=measure,
    draw=draw,
    limits="The theorem is exact, so only its premises could fail; its price is the share of the truth that "
    "the threshold discards, which is reported. δ is known here because the truth is; for a real model it "
    "must be estimated.",
)
