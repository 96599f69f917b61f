"""Claim: the better the model, the better sampling works, and the less truncation helps.

    share of sampled sentences with p* > 0, by the width of the model

He He's lecture, "Decoding in practice".
"""

from __future__ import annotations

from itertools import pairwise

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.lab.claim import Claim, Numbers, Progress, lecture, points, tracked
from unspool.lab.claims.degeneration import LANGUAGE, sentences
from unspool.lab.small_models import excess_loss, language, train_model
from unspool.plots.seeds import chart, lines

WIDTHS = (4, 8, 16, 32, 64)
DECODERS = {"sampling": us.Sample(), "top-p 0.9": us.Sample(us.TopP(0.9))}


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Train Transformers of five widths on the same batches."""
    truth, data = ZipfMarkov(**LANGUAGE), language("zipf_markov", seed, 3000, **LANGUAGE)
    curves: dict[str, list[float]] = {"excess": [], **{name: [] for name in DECODERS}}
    widths = WIDTHS[:2] if quick else WIDTHS
    for width in tracked(widths, progress):
        shape = {"kind": "transformer_lm", "width": width, "heads": 2, "layers": 2, "inner_width": 2 * width}
        model = train_model(data, shape, 20 if quick else 300, seed)
        curves["excess"].append(excess_loss(model, truth, 100, 500 + seed))
        for name, decoder in DECODERS.items():
            curves[name].append(sentences(model, truth, decoder, 60 if quick else 500, seed).precision)
    shares = {name: curves[name] for name in DECODERS}
    gap = [one - two for one, two in zip(curves["top-p 0.9"], curves["sampling"], strict=True)]
    return {
        **points("{}, width {}: possible sentences", widths, shares),
        **points("width {1}: nats a token above the truth", widths, {"excess": curves["excess"]}),
        "width": list(map(float, widths)),
        **curves,
        "gap": gap,
    }


CLAIM = Claim(
    name="model_size",
    statement="As models get better and larger, sampling-based decoding works better.",
    source=lecture("Decoding in practice"),
    measured="Transformers of width 4 to 64 learn an artificial language of 60 words for 300 updates. Of 500 "
    "sentences sampled from each, with and without truncation, the share that is possible.",
    criterion={
        "sampling: from each width to the next the share rises, or falls by no more than 0.03": lambda n: all(
            b >= a - 0.03 for a, b in pairwise(n["sampling"])
        ),
        "sampling: at width 64 it is at least 0.3 above that at width 4": lambda n: (
            n["sampling"][-1] >= n["sampling"][0] + 0.3
        ),
        "at width 64 truncation gains less than it gains at best": lambda n: n["gap"][-1] < max(n["gap"]),
    },
    measure=measure,
    draw=chart(
        lines(
            "width",
            {name: name for name in DECODERS},
            "width of the model",
            "possible sentences",
            ticks=WIDTHS,
            xscale="log",
            ylim=(0, 1),
        )
    ),
)
