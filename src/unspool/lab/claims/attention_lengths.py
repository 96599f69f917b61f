"""Claim: one context vector forgets long sources; attention does not.

    c = h_n for every word,   or   c_t = Σ_i α(s_{t−1}, h_i) h_i

He He's lecture, "Encoder-decoder attention"; Bahdanau et al. 2015, fig. 2 (papers.bib: bahdanau2015neural).
benchmarks/lengths.py measures all five contexts, for longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import unspool as us
from unspool.data.known_languages.made_data import is_for_validation
from unspool.data.known_languages.tasks import TASKS
from unspool.lab.claim import Claim, Numbers, Part, Progress, lecture
from unspool.lab.small_models import task, train_model
from unspool.plots.seeds import lines

SYMBOLS, LONGEST = 20, 12
LENGTHS = (3, 4, 6, 8, 10, 12)
CONTEXTS = {"attention": "additive", "fixed": "last"}


def held_out(length: int, count: int, symbols: int = SYMBOLS) -> list[tuple[str, str]]:
    """Return different held-out rows of one length."""
    copy, rng = TASKS["copy"](symbols=symbols, shortest=length, longest=length), Random(length)
    found: dict[str, str] = {}
    if count > symbols**length // 20:  # a tenth of all rows is held out, more or less
        raise ValueError(f"there are not {count} held-out rows of {length} of {symbols} symbols")
    while len(found) < count:
        source, target = copy.pair(rng)
        if is_for_validation(source):
            found[source] = target
    return list(found.items())


def right(model: Any, length: int, count: int = 100, symbols: int = SYMBOLS) -> float:
    """Return the share of rows that is copied without error."""
    pairs = held_out(length, count, symbols)
    outs = us.generate(model, [source for source, _ in pairs], us.Greedy(), max_new_tokens=length + 1)
    return sum(out.text == target for out, (_, target) in zip(outs, pairs, strict=True)) / len(pairs)


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train the same network with either context on the same batches."""
    found: dict[str, list[float]] = {}
    for done, (name, context) in enumerate(CONTEXTS.items()):
        model = {"kind": "rnn_seq2seq", "width": 48, "bidirectional": False, "context_kind": context}
        data = task("copy", seed, 6000, symbols=SYMBOLS, longest=LONGEST)
        made = train_model(data, model, 20 if quick else 300, seed, lr=1e-2)
        found[name] = [right(made, length, 20 if quick else 100) for length in LENGTHS]
        progress((done + 1) / len(CONTEXTS))
    told = {f"{name}, {n} symbols": x for name in CONTEXTS for n, x in zip(LENGTHS, found[name], strict=True)}
    return {**told, "length": [float(length) for length in LENGTHS], **found}


def draw(figure: Any, runs: Sequence[Numbers]) -> None:
    """Draw right answers by length."""
    axes = figure.subplots()
    lines(axes, runs, "length", {"attention": "attention", "fixed": "fixed context: the last state"})
    axes.set(xlabel="symbols to copy", ylabel="copied without a mistake", ylim=(-0.03, 1.03), xticks=LENGTHS)


CLAIM = Claim(
    name="attention_lengths",
    statement="A fixed context vector does worse the longer the source is; with attention, length does not "
    "matter.",
    source=lecture("Encoder-decoder attention", "bahdanau2015neural", "sutskever2014sequence"),
    measured="GRU encoder–decoders (width 48, one direction) learn for 300 updates to copy rows of 1 to 12 "
    "of 20 symbols, with attention and with the encoder's last state as the only context; then each copies "
    "100 held-out rows of each length, greedily.",
    criterion=(
        Part("attention copies at least 0.9 of the rows of 12 symbols", lambda n: n["attention"][-1] >= 0.9),
        Part(
            "the fixed context copies at most half as many of the rows of 12 symbols as of those of 3",
            lambda n: n["fixed"][-1] <= 0.5 * n["fixed"][0],
        ),
        Part(
            "at 12 symbols attention is at least 0.5 better",
            lambda n: n["attention"][-1] >= n["fixed"][-1] + 0.5,
        ),
    ),
    measure=measure,
    draw=draw,
)
