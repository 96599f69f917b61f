"""Claim: a deep Transformer needs a warm-up with post-LN, but not with pre-LN.

    post   x ← LN(x + f(x))        pre   x ← x + f(LN(x))

He He's lecture, "Layer normalization" and "Pre-layer normalization"; Xiong et al. 2020
(papers.bib: xiong2020layer).
"""

from __future__ import annotations

from typing import Any

from unspool.lab.claim import Claim, Numbers, Progress, lecture, tracked
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.plots.seeds import chart, lines
from unspool.training import Diverged

LAYERS, RATE = 10, 5e-3
RUNS = {
    "pre-LN, no warm-up": ("pre", 0),
    "pre-LN, warm-up": ("pre", 40),
    "post-LN, no warm-up": ("post", 0),
    "post-LN, warm-up": ("post", 40),
}


def curve(place: str, warmup: int, seed: int, updates: int, layers: int) -> list[float]:
    """Return the loss of every update; a diverged run repeats its last loss, or 20 without one."""
    told: list[float] = []
    shape = {**TRANSFORMER_LM, "layers": layers, "norm": "layer", "norm_place": place}
    try:
        train_model(
            language("zipf_markov", seed, 3000, word_count=100, order=1),
            shape,
            updates,
            seed,
            lr=RATE,
            losses=told,
            schedule={"kind": "constant", "warmup": warmup},
            batches={"kind": "bucketed", "tokens": 256},
        )
    except Diverged:
        told += [told[-1] if told else 20.0] * (updates - len(told))
    return told


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train four runs from the same weights and batches."""
    updates, layers = (8, 3) if quick else (96, LAYERS)
    found: dict[str, list[float]] = {}
    for name, (place, warmup) in tracked(RUNS.items(), progress):
        found[name] = curve(place, warmup, seed, updates, layers)
    tail = max(1, updates // 8)
    return {
        **{f"{name}: loss at the end": sum(told[-tail:]) / tail for name, told in found.items()},
        "update": [float(at) for at in range(0, updates, max(1, updates // 40))],
        **{name: told[:: max(1, updates // 40)] for name, told in found.items()},
    }


def _end(n: Any, name: str) -> float:
    return float(n[f"{name}: loss at the end"])


CLAIM = Claim(
    name="norm_place",
    statement="Layer normalisation keeps deep stacks trainable: with pre-LN a deep Transformer trains "
    "without warm-up, with post-LN it needs one.",
    source=lecture(
        "Why do we need layer normalization; pre-layer normalization", "xiong2020layer", "ba2016layer"
    ),
    measured=f"Transformers of {LAYERS} layers (width 32) learn an artificial language for 96 updates at a "
    f"rate of {RATE:g}, with LayerNorm before the branches or behind the sums, with a warm-up of 40 updates "
    "or none. The mean loss of the last 12 updates.",
    criterion={
        "pre-LN does without: no more than 0.1 nats above pre-LN with warm-up": lambda n: (
            _end(n, "pre-LN, no warm-up") <= _end(n, "pre-LN, warm-up") + 0.1
        ),
        "post-LN without warm-up ends at least 0.3 nats above pre-LN without": lambda n: (
            _end(n, "post-LN, no warm-up") >= _end(n, "pre-LN, no warm-up") + 0.3
        ),
        "a warm-up helps post-LN by at least 0.2 nats": lambda n: (
            _end(n, "post-LN, warm-up") <= _end(n, "post-LN, no warm-up") - 0.2
        ),
    },
    measure=measure,
    draw=chart(lines("update", {name: name for name in RUNS}, "update", "−log p of a token")),
)
