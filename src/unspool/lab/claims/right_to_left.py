"""Claim: sums are easier to write from right to left, because each digit needs two digits and a carry.

    p(y | x) = Π p(y_i | y_{<i}, x)   in either order: "23+45=68", or 8 before 6

He He's lecture, "Autoregressive generative models: is this the only way?".
"""

from __future__ import annotations

from unspool.lab.claim import Claim, Numbers, Progress, lecture, points, tracked
from unspool.lab.small_models import held_out, share_right, task, train_model
from unspool.plots.seeds import chart, lines

DIGITS = 3
UPDATES = (150, 400)
MODEL = {"kind": "rnn_seq2seq", "width": 48, "context_kind": "additive"}
ORDERS = {"left to right": False, "right to left": True}


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train both orders on the same sums, with increasing numbers of updates."""
    found: dict[str, list[float]] = {name: [] for name in ORDERS}
    todo = [(name, updates) for name in ORDERS for updates in (UPDATES[:1] if quick else UPDATES)]
    for name, updates in tracked(todo, progress):
        sums = {"digits": DIGITS, "right_to_left": ORDERS[name]}
        data = task("addition", seed, 8000, **sums)
        model = train_model(
            data, MODEL, 20 if quick else updates, seed, lr=1e-2, tokenizer={"kind": "characters"}
        )
        pairs = held_out("addition", 40 if quick else 300, 3, **sums)
        found[name].append(share_right(model, pairs, DIGITS + 2))
    measured = [float(it) for it in UPDATES[: len(found["left to right"])]]
    return {**points("{}, {} updates", UPDATES, found), "updates": measured, **found}


CLAIM = Claim(
    name="right_to_left",
    statement="Text need not be generated from left to right; a sum is learnt more easily from right to "
    "left.",
    source=lecture("Autoregressive generative models: is this the only way of modeling and generating text?"),
    measured="GRU encoder–decoders with attention learn to add numbers of up to three digits, digit by "
    "digit, the sum written in either order, for 150 and 400 updates; 300 held-out sums, greedily.",
    criterion={
        "after 400 updates right to left is at least 0.1 better": lambda n: (
            n["right to left"][-1] >= n["left to right"][-1] + 0.1
        ),
        "and never worse before": lambda n: all(
            b >= a for a, b in zip(n["left to right"], n["right to left"], strict=True)
        ),
    },
    measure=measure,
    draw=chart(
        lines(
            "updates", {name: name for name in ORDERS}, "updates", "sums that are right", ylim=(-0.03, 1.03)
        )
    ),
)
