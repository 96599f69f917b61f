"""Claim: the lower the temperature, the more texts end in a loop.

    p(w | …) ∝ exp(β · log p̂(w | …)),   trained at β = 1, used at other β

McAllester's problems, 4 (papers.bib: mcallester2020problems).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import unspool as us
from unspool.lab.claim import Claim, Numbers, Progress, points, problems
from unspool.lab.claims.greedy_trigram import trigram
from unspool.lab.small_models import OPENINGS
from unspool.plots.seeds import chart, lines

BETAS = (1.0, 1.5, 2.0, 4.0, 8.0, 32.0)


def rates(model: Any, prompts: Sequence[Any], tokens: int, seed: int) -> list[float]:
    """Return the share of texts that end in a loop, at every β and, last, with greedy search."""
    never = us.MinLength(tokens)  # a text that ends cannot loop
    decoders: list[us.Greedy | us.Sample] = [us.Sample(never, us.Temperature(1 / beta)) for beta in BETAS]
    found = []
    for decoder in [*decoders, us.Greedy(never)]:
        outs = us.generate(model, prompts, decoder, max_new_tokens=tokens, seed=seed)
        found.append(sum(us.find_loop(out.tokens) is not None for out in outs) / len(outs))
    return found


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure the trigram model of the problem, and a Transformer of English prose."""
    prompts = 24 if quick else 100
    small = trigram(seed, 60, 60 if quick else 400)
    pairs = [[4 + (seed + 7 * at) % 60, 4 + (3 * at) % 60] for at in range(prompts)]
    by_trigram = rates(small, pairs, 100 if quick else 200, seed)
    progress(0.5)
    openings = (OPENINGS * 4)[: 12 if quick else 64]
    by_transformer = rates(us.load("bible"), openings, 60 if quick else 128, seed)
    return {
        **points("{}, β = {:g}", BETAS, {"trigram": by_trigram}),
        "trigram, greedy": by_trigram[-1],
        **points("{}, β = {:g}", BETAS, {"Transformer": by_transformer}),
        "Transformer, greedy": by_transformer[-1],
        "β": [*BETAS, 128.0],
        "trigram": by_trigram,
        "Transformer": by_transformer,
    }


def rises(curve: Sequence[float], slack: float = 0.03) -> bool:
    """Whether a curve never falls by more than `slack`, which allows for chance."""
    return all(after >= before - slack for before, after in pairwise(curve))


CLAIM = Claim(
    name="loop_rate",
    statement="The lower the temperature, the more texts run into a loop, in trigram models and in "
    "Transformers.",
    source=problems("problem 4", "holtzman2020curious"),
    measured="100 texts of 200 words from a trigram model, and 64 texts of 128 tokens from the built-in "
    "Transformer `bible` (16 openings, 4 samples each; the end of the text is forbidden), at six "
    "temperatures and under greedy search. A text loops if its last tokens are exactly periodic (three "
    "times, 6 tokens or more).",
    criterion={
        "trigram: the rate never falls by more than 0.03 as β rises": lambda n: rises(n["trigram"]),
        "trigram: at most 0.1 at β = 1, and 1 under greedy search": lambda n: (
            n["trigram"][0] <= 0.1 and n["trigram"][-1] == 1
        ),
        "Transformer: the rate never falls by more than 0.03": lambda n: rises(n["Transformer"]),
        "Transformer: at most 0.1 at β = 1, and at least 0.5 under greedy search": lambda n: (
            n["Transformer"][0] <= 0.1 and n["Transformer"][-1] >= 0.5
        ),
    },
    measure=measure,
    draw=chart(
        lines(
            "β",
            {"trigram": "trigram model", "Transformer": "Transformer (built-in, 2 M weights)"},
            "β = 1 / temperature",
            "texts that end in a loop",
            ticks={**{beta: f"{beta:g}" for beta in BETAS}, 128.0: "greedy"},
            xscale="log",
            ylim=(-0.03, 1.03),
        )
    ),
)
