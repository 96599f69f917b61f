"""Claim: a repetition is more probable than a reasonable text, and that more than nonsense.

    log p(repetition | context) > log p(reasonable text | context) > log p(nonsense | context)

He He's lecture, "Is argmax the right decoding objective?", after Zhang et al. 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import unspool as us
from unspool.lab.claim import Claim, Numbers, Progress, lecture, tracked
from unspool.lab.small_models import PASSAGES
from unspool.plots.canvas import BLUE, hide_frame

KINDS = ("repetition", "reasonable", "nonsense")
TOKENS = 20


def continuations(model: Any, passage: str, rng: Random) -> tuple[list[int], dict[str, list[int]]]:
    """Return the first half of a passage, and three continuations of equal length."""
    ids = list(model.tokenizer.encode(passage))
    words = passage.split()
    half = len(words) // 2
    prompt = list(model.tokenizer.encode(" ".join(words[:half])))
    rest = ids[len(prompt) :][:TOKENS]
    mixed = " " + " ".join(rng.sample(words, len(words)))
    again = [token for token in prompt if token != model.tokenizer.bos_id]
    nonsense = [token for token in model.tokenizer.encode(mixed) if token != model.tokenizer.bos_id]
    # The prompt is repeated, as in the examples of the lecture.
    ways = {"repetition": again, "reasonable": rest, "nonsense": nonsense}
    return prompt, {kind: way[: len(rest)] for kind, way in ways.items()}


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Score eight passages, with a new shuffle for each seed."""
    model, rng = us.load("bible"), Random(seed)
    passages = PASSAGES[:3] if quick else PASSAGES
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for passage in tracked(passages, progress):
        prompt, ways = continuations(model, passage, rng)
        for kind, way in ways.items():
            logps = us.score(model, prompt, way).logps
            found[kind].append(sum(logps) / len(logps))
    pairs = list(zip(*found.values(), strict=True))
    return {
        **{f"log p a token, {kind}": sum(found[kind]) / len(passages) for kind in KINDS},
        "passages": len(passages),
        "repetition above reasonable": sum(one > two for one, two, _ in pairs),
        "reasonable above nonsense": sum(two > three for _, two, three in pairs),
        **found,
    }


def draw(figure: Any, runs: Sequence[Any]) -> None:
    """Draw a line for each passage."""
    axes = figure.subplots()
    for run in runs:
        for logps in zip(*(run[kind] for kind in KINDS), strict=True):
            axes.plot(range(len(KINDS)), logps, "o-", color=BLUE, alpha=0.35, markersize=3)
    axes.set_xticks(range(len(KINDS)), KINDS)
    axes.set_ylabel("log p a token")
    axes.grid(axis="y", alpha=0.3)
    hide_frame(axes)


CLAIM = Claim(
    name="likelihood_trap",
    statement="A repetition of the context is more probable to a model than a reasonable continuation, and "
    "that is more probable than nonsense.",
    source=lecture("Is argmax the right decoding objective?", "holtzman2020curious"),
    measured="Eight passages, written for this test: the built-in model `bible` reads the first half and "
    "scores, for as many tokens, the second half (reasonable), the first half again (repetition), and the "
    "passage's words in random order (nonsense).",
    criterion={
        "repetition above reasonable in at least 7 of 8 passages": lambda n: (
            n["repetition above reasonable"] >= 7
        ),
        "reasonable above nonsense in at least 7 of 8 passages": lambda n: (
            n["reasonable above nonsense"] >= 7
        ),
    },
    measure=measure,
    draw=draw,
    limits="A model of 2 million weights rarely copies its context; larger ones do. The seed shuffles the "
    "words; the passages and the model are the same with every seed.",
)
