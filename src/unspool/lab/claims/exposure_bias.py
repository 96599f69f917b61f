"""Claim: the more own words a model continues, the further it is from the truth.

    gap(l) = D_own(l) − D_right(l),   D(l) = E KL(p* ‖ p̂) after l words, its own or right ones

He He's lecture, "Exposure bias"; He et al. 2021 (papers.bib: he2021exposure).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool.data.known_languages import Agreement, FullSupport
from unspool.diagnose.exposure_bias import true_exposure
from unspool.lab.claim import Claim, Numbers, Progress, lecture
from unspool.lab.small_models import TRANSFORMER_LM, language, train_model
from unspool.plots.seeds import lines

LANGUAGE: dict[str, Any] = {"nouns": 8, "verbs": 8, "fillers": 8, "embed": 0.15}
"""Verbs agree with distant nouns."""
NOISE = 0.02
"""Share of random words, so that every sentence is possible and the truth is known after every prefix."""
LENGTHS = (1, 2, 4, 6, 8, 12)


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure a Transformer of a language with distant agreement."""
    data = {**language("agreement", seed, 3000, **LANGUAGE), "noise": NOISE}
    model = train_model(data, TRANSFORMER_LM, 60 if quick else 300, seed)
    progress(0.6)
    truth = FullSupport(Agreement(**LANGUAGE), NOISE)
    found = true_exposure(model, truth, LENGTHS, texts=60 if quick else 600, seed=seed)
    points = found.points
    return {
        **{f"gap after {it.length} words": it.gap for it in points},
        **{f"own texts with noise after {it.length} words": it.lost or 0.0 for it in points},
        "words": [float(it.length) for it in points],
        "own": [it.own for it in points],
        "right": [it.right for it in points],
        "gap": [it.gap for it in points],
    }


def draw(figure: Any, runs: Sequence[Any]) -> None:
    """Draw the divergence by length, up to the longest that every seed has."""
    shortest = min(len(run["words"]) for run in runs)
    cut = [{name: run[name][:shortest] for name in ("words", "own", "right")} for run in runs]
    names = {"own": "after its own words", "right": "after right words"}
    lines("words", names, "words before", "KL from the truth, nats", ylim=(0, None))(figure.subplots(), cut)


CLAIM = Claim(
    name="exposure_bias",
    statement="Trained on right prefixes only, a model does worse after its own words, and worse the "
    "more of them there are.",
    source=lecture("Exposure bias", "he2021exposure", "bengio2015scheduled"),
    measured="A Transformer learns an artificial language with distant agreement, in which 2 % of the words "
    "are random, so every sentence is possible. After 1 to 12 words, its own or right ones, the exact "
    "divergence of its next word from the truth (600 texts each).",
    criterion={
        "the gap after 8 words is above 0": lambda n: n["gap after 8 words"] > 0,
        "… and larger than after 2 words": lambda n: n["gap after 8 words"] > n["gap after 2 words"],
    },
    measure=measure,
    draw=draw,
)
