"""At zero temperature a trigram model comes back to a pair of words, and goes round in a circle from there.

    w_{t+2} = argmax_w h(e(w_t), e(w_{t+1}))ᵀ e(w):   the next pair is a function of the last,
    so that some pair comes twice within V² + 1 pairs, and everything after it with it

McAllester's problems, 4 (papers.bib: mcallester2020problems).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import unspool as us
from unspool.lab.claim import Claim, Numbers, Part, Progress, problems
from unspool.lab.small_models import language, learnt

MODEL = {"kind": "trigram", "width": 16, "inner_width": 32}
STARTS = 40


def trigram(seed: int, words: int, updates: int) -> Any:
    """A trigram model of a language in which a word depends on the last two."""
    data = language("zipf_markov", seed, 2000, word_count=words, order=2, seed=seed)
    return learnt(data, MODEL, updates, seed, lr=1e-2)


def walk(following: Sequence[Sequence[int]], pair: tuple[int, int]) -> tuple[int, int]:
    """How many pairs are there before one comes again, and how long the circle is that it closes."""
    seen: dict[tuple[int, int], int] = {}
    while pair not in seen:
        seen[pair] = len(seen)
        pair = (pair[1], following[pair[0]][pair[1]])
    return len(seen), len(seen) - seen[pair]


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Walk from every pair of words, by a table of what the model would say; generate from some."""
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
    # The end of a text would end the circle: it is one more word here.
    never = us.MinLength(longest)
    told = {}
    decoders: dict[str, us.Greedy | us.Sample] = {"greedy": us.Greedy(never), "sampled": us.Sample(never)}
    for name, decoder in decoders.items():
        outs = us.generate(model, starts, decoder, max_new_tokens=longest, seed=seed)
        told[name] = sum(us.find_loop(out.tokens) is not None for out in outs) / len(outs)
    return {
        "V": size,
        "bound, V² + 1": size**2 + 1,
        "pairs before one comes again, most": most,
        "pairs before one comes again, mean": sum(steps for steps, _ in walks) / len(walks),
        "length of the circle, mean": sum(circle for _, circle in walks) / len(walks),
        "greedy texts that end in a circle": told["greedy"],
        "sampled texts that end in a circle": told["sampled"],
        "steps": sorted(float(steps) for steps, _ in walks)[:: max(1, len(walks) // 200)],
    }


def draw(figure: Any, runs: Sequence[Numbers]) -> None:
    """How long it takes from every pair, sorted."""
    from unspool.plots.canvas import BLUE, RED

    axes = figure.subplots()
    for run in runs:
        steps = run["steps"]
        assert isinstance(steps, list)
        axes.plot([100 * at / max(1, len(steps) - 1) for at in range(len(steps))], steps, color=BLUE)
    axes.axhline(runs[0]["bound, V² + 1"], color=RED, label="V² + 1: no walk can be longer")
    axes.set(xlabel="pairs of words to begin with, %", ylabel="pairs until one comes again", yscale="log")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


CLAIM = Claim(
    name="greedy_trigram",
    statement="At zero temperature a trigram model is bound to repeat a pair of words, and loops from there "
    "on.",
    source=problems("problem 4", "bengio2003neural"),
    measured="A neural trigram model learns a made-up language of order 2. Every pair of words is followed, "
    "by a table of the model's most probable words, until a pair comes again; from 40 pairs, greedy search "
    "and sampling go on for more than three times as long as the longest walk.",
    criterion=(
        Part(
            "no walk is longer than V² + 1 pairs",
            lambda n: n["pairs before one comes again, most"] <= n["bound, V² + 1"],
        ),
        Part("every greedy text ends in a circle", lambda n: n["greedy texts that end in a circle"] == 1.0),
        Part(
            "at most 1 in 10 sampled texts does",
            lambda n: n["sampled texts that end in a circle"] <= 0.1,
        ),
    ),
    measure=measure,
    draw=draw,
)
