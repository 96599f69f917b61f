"""Claim: one context vector forgets long sources; attention does not.

    c = h_n for every word,   or   c_t = Σ_i α(s_{t−1}, h_i) h_i

He He's lecture, "Encoder-decoder attention"; Bahdanau et al. 2015, fig. 2 (papers.bib: bahdanau2015neural).
benchmarks/lengths.py measures all five contexts, for longer.
"""

from __future__ import annotations

from typing import Any

from unspool.lab.claim import Claim, Numbers, Progress, lecture, points, tracked
from unspool.lab.small_models import held_out, share_right, task, train_model
from unspool.plots.seeds import chart, lines

SYMBOLS, LONGEST = 20, 12
LENGTHS = (3, 4, 6, 8, 10, 12)
CONTEXTS = {"attention": "additive", "fixed": "last"}


def right(model: Any, length: int, count: int = 100, symbols: int = SYMBOLS) -> float:
    """Return the share of held-out rows of one length that is copied without error."""
    pairs = held_out("copy", count, length, symbols=symbols, shortest=length, longest=length)
    return share_right(model, pairs, length + 1)


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train the same network with either context on the same batches."""
    found: dict[str, list[float]] = {}
    for name, context in tracked(CONTEXTS.items(), progress):
        model = {"kind": "rnn_seq2seq", "width": 48, "bidirectional": False, "context_kind": context}
        data = task("copy", seed, 6000, symbols=SYMBOLS, longest=LONGEST)
        made = train_model(data, model, 20 if quick else 300, seed, lr=1e-2)
        found[name] = [right(made, length, 20 if quick else 100) for length in LENGTHS]
    return {**points("{}, {} symbols", LENGTHS, found), "length": list(map(float, LENGTHS)), **found}


CLAIM = Claim(
    name="attention_lengths",
    statement="A fixed context vector does worse the longer the source is; with attention, length does not "
    "matter.",
    source=lecture("Encoder-decoder attention", "bahdanau2015neural", "sutskever2014sequence"),
    measured="GRU encoder–decoders (width 48, one direction) learn for 300 updates to copy rows of 1 to 12 "
    "of 20 symbols, with attention and with the encoder's last state as the only context; then each copies "
    "100 held-out rows of each length, greedily.",
    criterion={
        "attention copies at least 0.9 of the rows of 12 symbols": lambda n: n["attention"][-1] >= 0.9,
        "the fixed context copies at most half as many of the rows of 12 symbols as of those "
        "of 3": lambda n: n["fixed"][-1] <= 0.5 * n["fixed"][0],
        "at 12 symbols attention is at least 0.5 better": lambda n: (
            n["attention"][-1] >= n["fixed"][-1] + 0.5
        ),
    },
    measure=measure,
    draw=chart(
        lines(
            "length",
            {"attention": "attention", "fixed": "fixed context: the last state"},
            "symbols to copy",
            "copied without a mistake",
            ylim=(-0.03, 1.03),
            ticks=LENGTHS,
        )
    ),
)
