"""Training speed: the training loop compared with a bare loop around Hugging Face's GPT-2 of the same shape.

    python benchmarks/train.py

A Transformer with 4 layers, width 256 and 8,000 words trains on batches of 16 × 128 tokens on one thread. The loops take
turns, round by round; the minimum time of an update counts. The peak is that of one large matrix product in the same
rounds; an update counts 6 operations per weight of a product and token, plus those of causal attention. The cost of
validation, curves and checkpoints at their default intervals is measured on the same run. --cpu uses processor time, for
a machine with other load.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from unspool.data.batch import Batch
from unspool.models import TransformerConfig
from unspool.objectives import CrossEntropy
from unspool.training.loop import training_loop
from unspool.training.run_folder import RunFolder
from unspool.training.run_state import Run
from unspool.training.settings import TrainSettings
from unspool.training.validation import validate

ROWS, LENGTH, WIDTH, LAYERS, HEADS, VOCABULARY = 16, 128, 256, 4, 4, 8000
TOKENS = ROWS * LENGTH
PEAK = 1536
GPT2 = TransformerConfig(
    vocab_size=VOCABULARY,
    width=WIDTH,
    layers=LAYERS,
    heads=HEADS,
    kv_heads=HEADS,
    head_width=WIDTH // HEADS,
    inner_width=4 * WIDTH,
    context=LENGTH,
    norm="layer",
    positions="learned",
    activation="gelu_tanh",
    bias=True,
    tied=True,
)
LLAMA = replace(
    GPT2, norm="rms", positions="rotary", activation="swiglu", bias=False, inner_width=8 * WIDTH // 3
)


class RandomFeed:
    """Words drawn like those of a language: few are frequent."""

    per_epoch = 50

    def __init__(self) -> None:
        p = 1.0 / torch.arange(1, VOCABULARY + 1)
        dice = torch.Generator().manual_seed(1)
        tokens = torch.multinomial(p, self.per_epoch * ROWS * (LENGTH + 1), replacement=True, generator=dice)
        self.tokens = tokens.view(self.per_epoch, ROWS, LENGTH + 1)

    def batch(self, number: int) -> Batch:
        rows = self.tokens[number % self.per_epoch]
        lengths, weights = torch.full((ROWS,), LENGTH), torch.ones(ROWS, LENGTH)
        return Batch(rows[:, :-1], lengths, rows[:, 1:], weights)


def ours(config: TransformerConfig, settings: TrainSettings) -> Run:
    torch.manual_seed(0)
    feed = RandomFeed()
    return Run(config.build(), CrossEntropy(), feed, settings, valid=[feed.batch(i) for i in range(20)])


def huggingface() -> Iterator[None]:
    """A bare loop, as one would write it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_positions=LENGTH,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=HEADS,
            bos_token_id=0,
            eos_token_id=0,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        )
    )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    feed, number = RandomFeed(), 0
    while True:
        rows = feed.tokens[number % feed.per_epoch][:, :-1].contiguous()
        optimizer.zero_grad(set_to_none=True)
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        number += 1
        yield


def operations(config: TransformerConfig) -> float:
    """Of one update, forwards and backwards."""
    gates = 3 if config.activation == "swiglu" else 2
    block = 4 * WIDTH * WIDTH + gates * WIDTH * config.inner_width
    products = LAYERS * block + WIDTH * VOCABULARY
    return 6.0 * products * TOKENS + 6.0 * LAYERS * LENGTH * WIDTH * TOKENS


def timed(run: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    run()
    return clock() - began


def measure(args: argparse.Namespace) -> dict[str, float]:
    clock = time.process_time if args.cpu else time.perf_counter
    settings = TrainSettings(updates=10**9)
    runs = {
        "ours": training_loop(ours(GPT2, settings)),
        "ours, Llama's shape": training_loop(ours(LLAMA, settings)),
        "Hugging Face": huggingface(),
    }
    a, b = torch.randn(PEAK, PEAK), torch.randn(PEAK, PEAK)
    times: dict[str, list[float]] = {name: [] for name in (*runs, "product")}
    for loop in runs.values():
        next(loop)
    for _ in range(args.rounds):
        times["product"].append(timed(lambda: a @ b, clock))
        for name, loop in runs.items():
            times[name] += [timed(lambda loop=loop: next(loop), clock) for _ in range(args.updates)]
    return {name: min(found) for name, found in times.items()}


def extras(args: argparse.Namespace) -> dict[str, float]:
    """Seconds of one validation, one checkpoint and one point of the curves, wherever they are written."""
    clock = time.process_time if args.cpu else time.perf_counter
    run = ours(GPT2, TrainSettings(updates=10**9))
    with tempfile.TemporaryDirectory() as folder:
        run_folder = RunFolder(Path(folder))
        run_folder.resume(run)
        next(training_loop(run))
        point = {"update": 1, "loss": 1.0, "nll": 1.0, "norm": 1.0, "lr": 1.0, "targets": 1.0, "seconds": 1.0}
        return {
            "validation": min(timed(lambda: validate(run), clock) for _ in range(3)),
            "checkpoint": min(
                timed(lambda: run_folder.checkpoint(run, regular=True), clock) for _ in range(3)
            ),
            "point": min(timed(lambda: run_folder.add_point(point), clock) for _ in range(3)),
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=2, help="of each loop in a round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="the process's own time instead of the clock's")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    best, extra = measure(args), extras(args)
    peak = 2.0 * PEAK**3 / best["product"]
    settings = TrainSettings(updates=1)
    added = (
        extra["validation"] / settings.validate_every
        + extra["checkpoint"] / settings.checkpoint_every
        + extra["point"] / settings.log_every
    ) / best["ours"]
    result = {
        "tokens_per_second": TOKENS / best["ours"],
        "ratio_to_huggingface": best["Hugging Face"] / best["ours"],
        "share_of_peak": operations(GPT2) / best["ours"] / peak,
        "share_of_peak_llama": operations(LLAMA) / best["ours, Llama's shape"] / peak,
        "share_of_peak_huggingface": operations(GPT2) / best["Hugging Face"] / peak,
        "peak_gflops": peak / 1e9,
        "share_of_time_for_extras": added,
        **{f"seconds_{name}": it for name, it in (*best.items(), *extra.items())},
    }
    if args.json:
        print(json.dumps(result))
        return 0
    table = Table(
        title=f"one update of {TOKENS} tokens, {args.threads} thread(s), peak {peak / 1e9:.0f} GFLOP/s"
    )
    for column in ("loop", "ms", "tokens/s", "share of peak", "× Hugging Face"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    for name, config in (("ours", GPT2), ("Hugging Face", GPT2), ("ours, Llama's shape", LLAMA)):
        ratio = "" if config is LLAMA else f"{best['Hugging Face'] / best[name]:.2f}"
        share = operations(config) / best[name] / peak
        table.add_row(name, f"{1e3 * best[name]:.0f}", f"{TOKENS / best[name]:,.0f}", f"{share:.1%}", ratio)
    Console().print(table)
    said = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in extra.items())
    print(f"with validation, curves and checkpoints at their defaults: {added:+.2%} ({said})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
