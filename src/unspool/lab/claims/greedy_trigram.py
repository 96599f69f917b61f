"""Claim: at zero temperature a trigram model returns to a pair of words and loops from there.

    w_{t+2} = argmax_w h(e(w_t), e(w_{t+1}))ᵀ e(w):   the next pair is a function of the last,
    so some pair occurs twice within V² + 1 pairs, and everything after it repeats

McAllester's problems, 4 (papers.bib: mcallester2020problems).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import unspool as us
from unspool.lab.claim import Claim, Numbers, Progress, problems
from unspool.lab.small_models import language, train_model
from unspool.plots.canvas import BLUE, RED, hide_frame

MODEL = {"kind": "trigram", "width": 16, "inner_width": 32}
STARTS = 40


def trigram(seed: int, words: int, updates: int) -> Any:
    """Train a trigram model of a language of order 2."""
    data = language("zipf_markov", seed, 2000, word_count=words, order=2, seed=seed)
    return train_model(data, MODEL, updates, seed, lr=1e-2)


def walk(following: Sequence[Sequence[int]], pair: tuple[int, int]) -> tuple[int, int]:
    """Return the number of pairs until one repeats, and the length of the loop."""
    seen: dict[tuple[int, int], int] = {}
    while pair not in seen:
        seen[pair] = len(seen)
        pair = (pair[1], following[pair[0]][pair[1]])
    return len(seen), len(seen) - seen[pair]


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Follow every pair of words with a table of the most probable words, and generate from some."""
    words = 20 if quick else 60
    model = trigram(seed, words, 60 if quick else 400)
    progress(0.6)
    size = model.vocab_size
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    with torch.no_grad():
        logp_PV = model(pairs)[:, -1]
    best_P = logp_PV.argmax(-1).tolist()
    following = [best_P[row * size : (row + 1) * size] for row in range(size)]
    walks = [walk(following, (one, two)) for one in range(size) for two in range(size)]
    starts = [pairs[int(at)].tolist() for at in torch.randperm(len(pairs))[:STARTS]]
    most = max(steps for steps, _ in walks)
    longest = 3 * most + 12
    # EOS would end the loop, so it is forbidden.
    never = us.MinLength(longest)
    loop_rates = {}
    decoders: dict[str, us.Greedy | us.Sample] = {"greedy": us.Greedy(never), "sampled": us.Sample(never)}
    for name, decoder in decoders.items():
        outs = us.generate(model, starts, decoder, max_new_tokens=longest, seed=seed)
        loop_rates[name] = sum(us.find_loop(out.tokens) is not None for out in outs) / len(outs)
    return {
        "V": size,
        "bound, V² + 1": size**2 + 1,
        "pairs before one comes again, most": most,
        "pairs before one comes again, mean": sum(steps for steps, _ in walks) / len(walks),
        "length of the circle, mean": sum(circle for _, circle in walks) / len(walks),
        "greedy texts that end in a circle": loop_rates["greedy"],
        "sampled texts that end in a circle": loop_rates["sampled"],
        "steps": sorted(float(steps) for steps, _ in walks)[:: max(1, len(walks) // 200)],
    }


def draw(figure: Any, runs: Sequence[Any]) -> None:
    """Draw the sorted number of pairs until one repeats."""
    axes = figure.subplots()
    for run in runs:
        steps = run["steps"]
        axes.plot([100 * at / max(1, len(steps) - 1) for at in range(len(steps))], steps, color=BLUE)
    axes.axhline(runs[0]["bound, V² + 1"], color=RED, label="V² + 1: no walk can be longer")
    axes.set(xlabel="pairs of words to begin with, %", ylabel="pairs until one comes again", yscale="log")
    axes.legend(frameon=False)
    hide_frame(axes)


CLAIM = Claim(
    name="greedy_trigram",
    statement="At zero temperature a trigram model must repeat a pair of words, and loops from there on.",
    source=problems("problem 4", "bengio2003neural"),
    measured="A neural trigram model learns an artificial language of order 2. Every pair of words is "
    "followed, by a table of the model's most probable words, until a pair repeats; from 40 pairs, greedy "
    "search and sampling continue for more than three times the longest walk.",
    criterion={
        "no walk is longer than V² + 1 pairs": lambda n: (
            n["pairs before one comes again, most"] <= n["bound, V² + 1"]
        ),
        "every greedy text ends in a circle": lambda n: n["greedy texts that end in a circle"] == 1.0,
        "at most 1 in 10 sampled texts does": lambda n: n["sampled texts that end in a circle"] <= 0.1,
    },
    measure=measure,
    draw=draw,
)
