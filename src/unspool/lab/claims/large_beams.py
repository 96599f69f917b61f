"""Claim: large beams find short texts, because every word lowers the probability.

    score(y_1 … y_t) = Σ log p(y_i | y_{<i}),   the best of k finished hypotheses

He He's lecture, "Is argmax the right decoding objective?"; Murray & Chiang 2018
(papers.bib: murray2018correcting); Stahlberg & Byrne 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import unspool as us
from unspool.data.known_languages import ZipfMarkov
from unspool.data.known_languages.known_language import TrueModel
from unspool.lab.claim import Claim, Numbers, Progress, lecture, points, tracked
from unspool.lab.small_models import held_out, task, train_model
from unspool.plots.seeds import chart, lines

WIDTHS = (1, 4, 16, 64)
MAX_LENGTH = 14
SEQ2SEQ = {
    **{"kind": "transformer_seq2seq", "width": 32, "heads": 4, "inner_width": 64, "positions": "sinusoidal"},
    **{"encoder_layers": 1, "decoder_layers": 1},
}


def lengths(model: Any, prompts: Sequence[Any], width: int, most: int) -> tuple[list[int], list[Any]]:
    """Return the lengths of the best hypotheses without EOS, and the outputs."""
    outs = us.generate(model, prompts, us.Beam(width), max_new_tokens=most, batch_size=8)
    return [len(out.tokens) - (out.finish_reason == "eos") for out in outs], outs


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure the true model of a language, and an undertrained translator."""
    widths = WIDTHS[:2] if quick else WIDTHS
    truth = ZipfMarkov(word_count=200, order=1, branching=16, seed=seed)
    # Prompts are the first two words of sampled sentences, because few words can start a sentence.
    rng = Random(seed)
    begun = [truth.sample(rng)[:2] for _ in range(6 if quick else 30)]
    starts = [[truth.bos, *words] for words in begun]
    model = train_model(task("reverse", seed, longest=MAX_LENGTH), SEQ2SEQ, 30 if quick else 250, seed)
    pairs = held_out("reverse", 6 if quick else 40, 5, shortest=10, longest=MAX_LENGTH)
    curves: dict[str, list[float]] = {"perfect model": [], "translator": [], "right": []}
    for width in tracked(widths, progress):
        found, _ = lengths(TrueModel(truth), starts, width, 40)
        curves["perfect model"].append(sum(found) / len(found))
        output_lengths, outs = lengths(model, [source for source, _ in pairs], width, 2 * MAX_LENGTH)
        goal = sum(len(target.split()) for _, target in pairs)
        curves["translator"].append(sum(output_lengths) / goal)
        right = [out.text == target for out, (_, target) in zip(outs, pairs, strict=True)]
        curves["right"].append(sum(right) / len(right))
    return {
        **points("{}, beam {}: words", widths, {"perfect model": curves["perfect model"]}),
        **points("{}, beam {}: length ratio", widths, {"translator": curves["translator"]}),
        **points("{}, beam {}: right", widths, {"translator": curves["right"]}),
        "mean length of a sentence of the language": truth.mean_length(),
        "width": list(map(float, widths)),
        **curves,
    }


CLAIM = Claim(
    name="large_beams",
    statement="With large beams, search returns empty or very short texts.",
    source=lecture("Is argmax the right decoding objective?", "murray2018correcting"),
    measured="Beams of 1 to 64, without length penalty: the true model of an artificial language, from 30 "
    "prompts of two words (its sentences have 10 words on average); and a Transformer that has learnt "
    "for 250 updates to reverse rows, on 40 rows of 10 to 14 symbols.",
    criterion={
        "perfect model: length falls from each width to the next, to at most 0.7 of greedy "
        "search's": lambda n: (
            all(b <= a for a, b in pairwise(n["perfect model"]))
            and n["perfect model"][-1] <= 0.7 * n["perfect model"][0]
        ),
        "translator: the length ratio at 64 is at least 0.05 below that at 1": lambda n: (
            n["translator"][-1] <= n["translator"][0] - 0.05
        ),
        "translator: fewer right answers at 64 than at 4": lambda n: n["right"][-1] < n["right"][1],
    },
    measure=measure,
    draw=chart(
        lines(
            "width",
            {"perfect model": "perfect model of a language"},
            "beam width",
            "words of the best hypothesis",
            xscale="log",
            ticks=WIDTHS,
            ylim=(0, None),
        ),
        lines(
            "width",
            {"translator": "length / right length", "right": "right answers"},
            "beam width",
            xscale="log",
            ticks=WIDTHS,
            ylim=(0, 1.1),
        ),
    ),
)
