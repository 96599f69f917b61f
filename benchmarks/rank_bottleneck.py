"""The softmax bottleneck on models whose true distribution is known: `python benchmarks/rank_bottleneck.py`.

First, the numerical rank of the log-probabilities compared with D + 1: random models, the same models after training, a
mixture of softmaxes and KerBS. Then, for every known language, the smallest possible error of a matrix of rank D + 1
(Eckart & Young) and the error of a trained model. If p* = 0, its logarithm is not finite, so the truth is smoothed to
(1 − s)·p* + s/V, and s is printed. One thread; a few minutes.
"""

from __future__ import annotations

import argparse
from random import Random
from typing import Any

import torch

from unspool.data.known_languages import LANGUAGES
from unspool.data.known_languages.known_language import TrueModel
from unspool.diagnose.overestimation import underestimation
from unspool.diagnose.softmax_bottleneck import (
    bottleneck,
    fitting_contexts,
    least_error,
    own_text,
    smoothed,
    spectrum,
)
from unspool.evaluate.teacher_forcing import read, windows
from unspool.training import train

SETTINGS = {"senses": {"word_count": 200}, "zipf_markov": {"word_count": 200, "order": 1}}
TRANSFORMER = {"layers": 1, "heads": 2, "kv_heads": 2, "head_width": 8, "inner_width": 64, "context": 256}
KINDS: dict[str, dict[str, Any]] = {"rnn_lm": {"cell": "gru"}, "transformer_lm": TRANSFORMER}


def learnt(language: str, kind: str, width: int, head: str, updates: int) -> Any:
    """A trained model; after 1 update at a rate of nearly 0, a random one."""
    return train(
        {
            "seed": 1,
            "data": {
                "kind": "language",
                "language": {"kind": language, **SETTINGS.get(language, {})},
                **{"train": 5000, "valid": 100},
            },
            "batches": {"kind": "bucketed", "tokens": 1024},
            "model": {"kind": kind, "width": width, "tied": False, "head": {"kind": head}, **KINDS[kind]},
            "schedule": {"kind": "cosine", "warmup": 1 + updates // 20},
            "train": {
                **{"updates": updates, "lr": 1e-2 if updates > 1 else 1e-12, "threads": 1},
                **{"validate_every": updates, "checkpoint_every": updates},
            },
        }
    )


def ranks(updates: int) -> None:
    print("| head | D + 1 | random RNN | trained RNN | random Transformer | trained Transformer |")
    print("|---|---|---|---|---|---|")
    for head, width in (("softmax", 8), ("softmax", 16), ("softmax", 32), ("mixture", 16), ("kerbs", 16)):
        found = []
        for kind in KINDS:
            for steps in (1, updates):
                model = learnt("senses", kind, width, head, steps)
                contexts = max(300, fitting_contexts(model))
                found.append(bottleneck(model, own_text(model, contexts), contexts).rank)
        print(f"| {head} | {width + 1} | {' | '.join(map(str, found))} |", flush=True)


def errors(updates: int, width: int, share: float, contexts: int) -> None:
    print(f"\nD = {width}, s = {share:g}, {contexts} contexts")
    print(
        "| language | V | rank of the truth | rank of the model | least error | achieved | δ | −min log p̂ |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in LANGUAGES:
        language, dice = LANGUAGES[name](**SETTINGS.get(name, {})), Random(7)
        model, rows = learnt(name, "rnn_lm", width, "softmax", updates), []
        while sum(map(len, rows)) < 2 * contexts:
            rows.append((language.bos, *language.sample(dice), language.eos))
        parts = windows(rows)
        logp, log_true = (
            torch.cat([it.logp_MV for it in read(by, parts)])[:contexts]
            for by in (model, TrueModel(language))
        )
        true = log_true.double().exp()
        matrix = smoothed(true, share)
        truth, said = spectrum(matrix.float()), spectrum(logp, model.output_matrix)
        least, achieved = least_error(matrix, width + 1), (matrix - logp.double()).norm().item()
        under = underestimation(logp, true)
        print(
            f"| {name} | {language.vocab_size} | {truth.rank} | {said.rank} | {least:.1f} | {achieved:.1f} | "
            f"{under.delta:.2f} | {said.delta:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--share", type=float, default=1e-6)
    parser.add_argument("--contexts", type=int, default=400)
    said = parser.parse_args()
    torch.set_num_threads(1)
    ranks(said.updates)
    errors(said.updates, said.width, said.share, said.contexts)


if __name__ == "__main__":
    main()
