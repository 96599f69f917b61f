"""Claim: shaping the loss can only hurt if training finds the true optimum, and may help otherwise.

    min_Φ L(Φ) ≤ L(argmin_Φ [L + λ R]):   λ > 0 cannot help on the population

McAllester's problems, 1(d) (papers.bib: mcallester2020problems).
"""

from __future__ import annotations

from unspool.data.known_languages import Agreement
from unspool.lab.claim import Claim, Numbers, Progress, problems, tracked
from unspool.lab.small_models import TRANSFORMER_LM, excess_loss, language, train_model
from unspool.plots.seeds import chart, lines

WEIGHTS = (0.0, 0.1, 0.5)
REGIMES = {"plenty of sentences": (6000, 400), "few sentences": (60, 200)}
SHAPINGS = {"focus": "attention_focus", "near": "attention_near"}


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train both losses at three weights, with much and with little data."""
    truth, found = Agreement(nouns=8, verbs=8, fillers=8), {}
    todo = [
        (regime, kind, w) for regime in REGIMES for kind in SHAPINGS for w in WEIGHTS if w or kind == "focus"
    ]
    for regime, kind, weight in tracked(todo, progress):
        sentences, updates = REGIMES[regime]
        data = language("agreement", seed, sentences, nouns=8, verbs=8, fillers=8)
        loss = {"kind": SHAPINGS[kind], "weight": weight * (0.1 if kind == "near" else 1)}
        auxiliary = [loss] if weight else []
        made = train_model(data, TRANSFORMER_LM, 10 if quick else updates, seed, auxiliary=auxiliary)
        found[f"{regime}, {kind} {weight:g}"] = excess_loss(made, truth, 40 if quick else 300, 700 + seed)
    for regime in REGIMES:
        found[f"{regime}, near 0"] = found[f"{regime}, focus 0"]
    curves = {
        f"{regime}, {kind}": [found[f"{regime}, {kind} {weight:g}"] for weight in WEIGHTS]
        for regime in REGIMES
        for kind in SHAPINGS
    }
    return {**found, "weight": list(WEIGHTS), **curves}


CLAIM = Claim(
    name="loss_shaping",
    statement="Loss shaping can only hurt if training finds the optimum of the population; otherwise "
    "it may help optimisation or generalisation.",
    source=problems("problem 1(d)"),
    measured="Transformers learn an artificial language with distant agreement with the focus or the near "
    "loss at three weights: from 6,000 sentences for 400 updates, and from 60 sentences for 200. "
    "Cross-entropy on new sentences less the truth's.",
    criterion={
        "with plenty of sentences no shaping at any weight helps by more than 0.01 nats": lambda n: all(
            min(n[f"plenty of sentences, {kind}"][1:]) >= n["plenty of sentences, focus"][0] - 0.01
            for kind in SHAPINGS
        ),
        "with few sentences some shaping helps, by at least 0.02 nats": lambda n: (
            min(min(n[f"few sentences, {kind}"][1:]) for kind in SHAPINGS)
            <= n["few sentences, focus"][0] - 0.02
        ),
    },
    measure=measure,
    draw=chart(
        *(
            lines(
                "weight",
                {f"{regime}, {kind}": kind for kind in SHAPINGS},
                "λ (near: × 0.1)",
                "nats a token above the truth",
                title=regime,
            )
            for regime in REGIMES
        )
    ),
    limits="400 updates do not quite reach the optimum, so the first part is only an approximation.",
)
