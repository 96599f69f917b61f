"""Recurrent models by torch and by their compiled steps: the same weights, the same prompts, one run, ratios.

    python benchmarks/recurrent_speed.py
    python benchmarks/recurrent_speed.py --width 512 --rows 1 8 32 --threads 2

A language model and an encoder–decoder with attention, of random weights, LSTM and GRU. Both engines write the
same texts in turn, round after round; a ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from random import Random

import torch
from rich.console import Console
from rich.table import Table

import unspool as us
from unspool.models.rnn_lm import RNNConfig
from unspool.models.rnn_seq2seq import RNNSeq2SeqConfig

VOCABULARY, PROMPT = 8000, 16
SEARCHES = {"greedy": us.Greedy(), "beam 5": us.Beam(5)}


def models(width: int) -> dict[str, us.Model]:
    """Two kinds of models of two kinds of cells."""
    built: dict[str, us.Model] = {}
    for cell in ("lstm", "gru"):
        torch.manual_seed(0)
        speaks = RNNConfig(vocab_size=VOCABULARY, width=width, layers=2, cell=cell)
        translates = RNNSeq2SeqConfig(vocab_size=VOCABULARY, width=width, cell=cell, bos=1, eos=2)
        built[f"language model, {cell}"] = speaks.build().eval()
        built[f"encoder–decoder, {cell}"] = translates.build().eval()
    return built


def seconds(work: Callable[[], list[us.Output]]) -> tuple[float, list[tuple[int, ...]]]:
    start = time.perf_counter()
    outputs = work()
    return time.perf_counter() - start, [output.tokens for output in outputs]


def measure(
    model: us.Model, search: object, rows: int, new: int, rounds: int
) -> tuple[float, list[float], bool]:
    """Tokens a second compiled, torch's time over the compiled by round, and whether the texts are equal."""
    dice = Random(0)
    prompts = [[dice.randrange(4, VOCABULARY) for _ in range(PROMPT)] for _ in range(rows)]

    def run(engine: str) -> tuple[float, list[tuple[int, ...]]]:
        model.engine = engine
        return seconds(lambda: us.generate(model, prompts, search, max_new_tokens=new))

    run("torch"), run("compiled")
    times, ratios, same = [], [], True
    for _ in range(rounds):
        (by_torch, texts), (compiled, others) = run("torch"), run("compiled")
        same = same and texts == others
        written = sum(map(len, others))
        times.append(written / compiled)
        ratios.append(by_torch / compiled)
    return statistics.median(times), ratios, same


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    title = f"recurrent models of width {args.width}, {args.threads} thread(s)"
    table = Table("model", "search", "rows", "tokens/s", "× torch", "spread", "same text", title=title)
    for name, model in models(args.width).items():
        for kind, search in SEARCHES.items():
            for rows in args.rows:
                speed, ratios, same = measure(model, search, rows, args.new_tokens, args.rounds)
                spread = f"{min(ratios):.2f}–{max(ratios):.2f}"
                median = f"{statistics.median(ratios):.2f}"
                table.add_row(name, kind, str(rows), f"{speed:.0f}", median, spread, "yes" if same else "no")
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
