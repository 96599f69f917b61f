"""Claim: without attention the gradient to the first source word vanishes with the length of the source.

    c = h_n   or   c_t = Σ_i α(s_{t−1}, h_i) h_i:   how large is ∂ log p(y_1 | x) / ∂ x_1 by the length of x?

He He's lecture, "Encoder-decoder attention: motivation"; Bahdanau et al. 2015
(papers.bib: bahdanau2015neural).
"""

from __future__ import annotations

from typing import Any

import torch

from unspool.lab.claim import Claim, Numbers, Progress, lecture, points, tracked
from unspool.models.rnn_seq2seq import RNNSeq2SeqConfig
from unspool.plots.seeds import chart, lines

LENGTHS = (2, 4, 8, 16, 32, 64)
CONTEXTS = {"fixed": "last", "attention": "additive"}


def reach(model: Any, length: int, rows: int) -> float:
    """Return the geometric mean of ‖∂ log p(y_1) / ∂ e(x_1)‖ / ‖∂ log p(y_1) / ∂ e(x_n)‖."""
    source_NS = torch.randint(4, model.vocab_size, (rows, length))
    target_N1 = torch.randint(4, model.vocab_size, (rows, 1))
    kept = []

    def keep(_module: Any, _inputs: Any, out: Any) -> None:
        out.retain_grad()
        kept.append(out)

    hook = model.embed.register_forward_hook(keep)
    try:
        logp = model(source_NS, torch.full((rows,), length), torch.full((rows, 1), model.config.bos))
    finally:
        hook.remove()
    logp[:, 0].gather(1, target_N1).sum().backward()
    grads_NS = next(it for it in kept if it.shape[1] == length).grad.norm(dim=-1)
    return float((grads_NS[:, 0] / grads_NS[:, -1]).log().mean().exp())


def measure(seed: int, quick: bool, progress: Progress) -> Numbers:
    """Measure untrained models, at the start of training."""
    found: dict[str, list[float]] = {name: [] for name in CONTEXTS}
    draws = 2 if quick else 6
    for length in tracked(LENGTHS, progress):
        for name, context in CONTEXTS.items():
            shares = []
            for draw_of in range(draws):
                torch.manual_seed(1000 * seed + draw_of)
                model = RNNSeq2SeqConfig(
                    vocab_size=40, width=64, context_kind=context, bidirectional=False, bos=1, eos=2
                ).build()
                shares.append(reach(model, length, 32))
            found[name].append(sum(shares) / draws)
    return {**points("{}, {} words", LENGTHS, found), "length": list(map(float, LENGTHS)), **found}


CLAIM = Claim(
    name="gradient_to_source",
    statement="Through a fixed context vector the gradient vanishes on its way to the first word of a long "
    "source; with attention it flows there directly.",
    source=lecture("Encoder-decoder attention: motivation", "bahdanau2015neural", "sutskever2014sequence"),
    measured="Untrained GRU encoder–decoders (width 64, one direction) read random sources. The gradient of "
    "the first word's log-probability with respect to the embedding of the first source word, over that of "
    "the last one.",
    criterion={
        "fixed context: at 64 words, less than 1e-3 of the gradient arrives": lambda n: n["fixed"][-1] < 1e-3,
        "attention: at 64 words, at least 100 times as much as without": lambda n: (
            n["attention"][-1] > 100 * n["fixed"][-1]
        ),
        "attention: at 64 words, at least a tenth of what there is at 8 words": lambda n: (
            n["attention"][-1] > 0.1 * n["attention"][2]
        ),
    },
    measure=measure,
    draw=chart(
        lines(
            "length",
            {"attention": "attention", "fixed": "fixed context: the last state"},
            "words of the source",
            "gradient at the first word\n/ at the last word",
            xscale="log",
            yscale="log",
            ticks=LENGTHS,
        )
    ),
    limits="The models are untrained, as at the start of training; trained models are in attention_lengths.",
)
