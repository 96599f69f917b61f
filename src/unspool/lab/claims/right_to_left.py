"""Claim: sums are easier to write from right to left, because each digit needs two digits and a carry.

    p(y | x) = Π p(y_i | y_{<i}, x)   in either order: "23+45=68", or 8 before 6

He He's lecture, "Autoregressive generative models: is this the only way?".
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

DIGITS = 3
UPDATES = (150, 400)
MODEL = {"kind": "rnn_seq2seq", "width": 48, "context_kind": "additive"}
ORDERS = {"left to right": False, "right to left": True}


def held_out(count: int, backwards: bool) -> list[tuple[str, str]]:
    """Return different held-out sums."""
    addition, rng = TASKS["addition"](digits=DIGITS, right_to_left=backwards), Random(3)
    found: dict[str, str] = {}
    while len(found) < count:
        source, target = addition.pair(rng)
        if is_for_validation(source):
            found[source] = target
    return list(found.items())


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train both orders on the same sums, with increasing numbers of updates."""
    found: dict[str, list[float]] = {name: [] for name in ORDERS}
    todo = [(name, updates) for name in ORDERS for updates in (UPDATES[:1] if quick else UPDATES)]
    for done, (name, updates) in enumerate(todo):
        data = task("addition", seed, 8000, digits=DIGITS, right_to_left=ORDERS[name])
        model = train_model(data, MODEL, 20 if quick else updates, seed, lr=1e-2, text={"kind": "characters"})
        pairs = held_out(40 if quick else 300, ORDERS[name])
        outs = us.generate(model, [source for source, _ in pairs], us.Greedy(), max_new_tokens=DIGITS + 2)
        right = [out.text == target for out, (_, target) in zip(outs, pairs, strict=True)]
        found[name].append(sum(right) / len(right))
        progress((done + 1) / len(todo))
    told = {
        f"{name}, {updates} updates": share
        for name in ORDERS
        for updates, share in zip(UPDATES, found[name], strict=False)
    }
    return {**told, "updates": [float(it) for it in UPDATES[: len(found["left to right"])]], **found}


def draw(figure: Any, runs: Sequence[Numbers]) -> None:
    """Draw right sums by updates."""
    axes = figure.subplots()
    lines(axes, runs, "updates", {name: name for name in ORDERS})
    axes.set(xlabel="updates", ylabel="sums that are right", ylim=(-0.03, 1.03))


CLAIM = Claim(
    name="right_to_left",
    statement="Text need not be generated from left to right; a sum is learnt more easily from right to "
    "left.",
    source=lecture("Autoregressive generative models: is this the only way of modeling and generating text?"),
    measured="GRU encoder–decoders with attention learn to add numbers of up to three digits, digit by "
    "digit, the sum written in either order, for 150 and 400 updates; 300 held-out sums, greedily.",
    criterion=(
        Part(
            "after 400 updates right to left is at least 0.1 better",
            lambda n: n["right to left"][-1] >= n["left to right"][-1] + 0.1,
        ),
        Part(
            "and never worse before",
            lambda n: all(b >= a for a, b in zip(n["left to right"], n["right to left"], strict=True)),
        ),
    ),
    measure=measure,
    draw=draw,
)
