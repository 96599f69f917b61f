"""Claims about loops: greedy search of a trigram model, and the rate of loops by temperature."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

import torch

import unspool as us
from unspool.lab.claim import PROBLEMS, Numbers, Progress, check, claim, points
from unspool.lab.small_models import (
    continue_texts,
    differences,
    language,
    loops,
    prompts_of,
    train_model,
)
from unspool.plots.canvas import BLUE, RED
from unspool.plots.seeds import chart, lines


def train_trigram(seed: int, words: int, updates: int) -> Any:
    data = language("zipf_markov", seed, 2000, word_count=words, order=2, seed=seed)
    return train_model(data, {"kind": "trigram", "width": 16, "inner_width": 32}, updates, seed, lr=1e-2)


# ---- greedy_trigram


def walk(following: Sequence[Sequence[int]], pair: tuple[int, int]) -> tuple[int, int]:
    """Return the number of pairs until one repeats, and the length of the loop."""
    seen: dict[tuple[int, int], int] = {}
    while pair not in seen:
        seen[pair] = len(seen)
        pair = (pair[1], following[pair[0]][pair[1]])
    return len(seen), len(seen) - seen[pair]


def _draw_walks(figure: Any, runs: Sequence[Any]) -> None:
    axes = figure.subplots()
    for run in runs:
        steps = run["steps"]
        axes.plot([100 * at / max(1, len(steps) - 1) for at in range(len(steps))], steps, color=BLUE)
    axes.axhline(runs[0]["bound, V² + 1"], color=RED, label="V² + 1: no walk can be longer")
    axes.set(xlabel="pairs of words to begin with, %", ylabel="pairs until one comes again", yscale="log")
    axes.legend(frameon=False)


@check(
    "At zero temperature a trigram model repeats a pair of words within V² + 1 pairs, and loops from there.",
    source=f"{PROBLEMS}, problem 4",
    measured="A neural trigram model learns an artificial language of order 2. Every pair of words is "
    "followed, by a table of the model's most probable words, until a pair repeats; from 40 pairs, greedy "
    "search and sampling continue for more than three times the longest walk.",
    criterion={
        "no walk is longer than V² + 1 pairs": lambda n: (
            n["pairs before one comes again, most"] <= n["bound, V² + 1"]
        ),
        "every greedy text ends in a circle": lambda n: n["greedy texts that end in a circle"] == 1.0,
    },
    draw=_draw_walks,
)
def greedy_trigram(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Follow every pair of words with a table of the most probable words, and generate from some.

        w_{t+2} = argmax_w h(e(w_t), e(w_{t+1}))ᵀ e(w):   the next pair is a function of the last,
        so some pair occurs twice within V² + 1 pairs, and everything after it repeats

    McAllester's problems, 4 (papers.bib: mcallester2020problems); Bengio et al. 2003
    (papers.bib: bengio2003neural).
    """
    model = train_trigram(seed, 20 if quick else 60, 60 if quick else 400)
    progress(0.6)
    size = model.vocab_size
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    with torch.no_grad():
        best_P = model(pairs)[:, -1].argmax(-1).tolist()
    following = [best_P[row * size : (row + 1) * size] for row in range(size)]
    walks = [walk(following, (one, two)) for one in range(size) for two in range(size)]
    starts = [pairs[int(at)].tolist() for at in torch.randperm(len(pairs))[:40]]
    most = max(steps for steps, _ in walks)
    texts = {it: continue_texts(model, starts, it, 3 * most + 12, seed) for it in (us.Greedy, us.Sample)}
    return {
        "V": size,
        "bound, V² + 1": size**2 + 1,
        "pairs before one comes again, most": most,
        "pairs before one comes again, mean": sum(steps for steps, _ in walks) / len(walks),
        "length of the circle, mean": sum(circle for _, circle in walks) / len(walks),
        "greedy texts that end in a circle": fmean(loops(texts[us.Greedy])),
        "sampled texts that end in a circle": fmean(loops(texts[us.Sample])),
        "steps": sorted(float(steps) for steps, _ in walks)[:: max(1, len(walks) // 200)],
    }


# ---- loop_rate

BETAS = (1.0, 1.5, 2.0, 4.0, 8.0, 32.0)


def loops_by_beta(model: Any, prompts: Sequence[Any], tokens: int, seed: int) -> list[list[float]]:
    """Return for every β, and last for greedy search, whether the text of each prompt ends in a loop."""
    decoders = [*(partial(_tempered, beta) for beta in BETAS), us.Greedy]
    return [loops(continue_texts(model, prompts, decoder, tokens, seed)) for decoder in decoders]


def _tempered(beta: float, never: us.MinLength) -> us.Sample:
    return us.Sample(never, us.Temperature(1 / beta))


@claim(
    "At low temperature, language models run into loops.",
    source=f"{PROBLEMS}, problem 4",
    measured="The built-in Transformer `bible` continues 16 prompts (an opening and 12 tokens sampled with "
    "the seed) by 128 tokens, a trigram model 100 pairs by 200 words, at six temperatures and greedily; the "
    "end of the text is forbidden. A text loops if its last tokens are exactly periodic (three times, 6 "
    "tokens or more).",
    primary="the Transformer's text ends in a loop: share at temperature 1/8 minus share at 1, for each "
    "prompt",
    matters=0.1,
    unit="prompt",
    crossed=16,
    assumed=(0.5, 0.3),
    secondary=(
        "Transformer, greedy",
        "Transformer, β = 1",
        "trigram, greedy",
        "trigram, β = 8",
        "trigram, β = 1",
    ),
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
def loop_rate(seed: int, quick: bool, progress: Progress) -> Numbers:
    """p(w | …) ∝ exp(β · log p̂(w | …)),   trained at β = 1, used at other β.

    McAllester's problems, 4 (papers.bib: mcallester2020problems); Holtzman et al. 2020
    (papers.bib: holtzman2020curious).
    """
    trigram = train_trigram(seed, 60, 60 if quick else 400)
    pairs = [[4 + (seed + 7 * at) % 60, 4 + (3 * at) % 60] for at in range(24 if quick else 100)]
    found = {"trigram": loops_by_beta(trigram, pairs, 100 if quick else 200, seed)}
    progress(0.5)
    model = us.load("bible")
    prompts = prompts_of(model, 6 if quick else 16, seed)
    found["Transformer"] = loops_by_beta(model, prompts, 60 if quick else 128, seed)
    curves = {name: [fmean(row) for row in rows] for name, rows in found.items()}
    numbers: dict[str, float] = {}
    for name, curve in curves.items():
        numbers |= {**points("{}, β = {:g}", BETAS, {name: curve}), f"{name}, greedy": curve[-1]}
    cold, warm = found["Transformer"][BETAS.index(8)], found["Transformer"][BETAS.index(1)]
    return {"effect": differences(cold, warm), **numbers, "β": [*BETAS, 128.0], **curves}
