"""Speed of one sampling step relative to Hugging Face: the same scores in one run, as ratios.

    python benchmarks/sampling.py                     # a table
    python benchmarks/sampling.py --batches 1 8 64 --json out/sampling.json
    python benchmarks/sampling.py --threads 2 --rules ancestral "top-k 50"

A step goes from logits to one token per row. Hugging Face copies the logits and applies its warpers, softmax and
torch.multinomial, as in `generate`. unspool normalises and draws in compiled code and also returns the token's
log-probabilities. "plain" is unspool's torch definition, transform by transform, as it runs without numba.

The engines take turns, round after round, so that disturbances affect all of them; a ratio is taken within a round. On one
thread, times are processor time. "real" scores are from a language model in the middle of sentences; "flat" scores are
random normal. Hugging Face comes with the `bench` extra.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor
from transformers.generation import logits_process as hf

import unspool as us
from unspool.decode.hypothesis import Hypothesis as Row
from unspool.decode.multinomial import Multinomial
from unspool.decode.search.sampling import draw, reshape
from unspool.decode.transforms import Eta, MinP, Temperature, TopK, TopP, Typical
from unspool.interfaces import Step, Transform

PROMPTS = [
    "The old ferry crosses the river twice a day, and on Sundays the captain lets the children steer it",
    "To bake bread without an oven, heat a heavy pot with its lid on until a drop of water dances in it",
    "Nobody in the village could remember who had planted the walnut tree, but everybody knew whose it was",
    "The second law of thermodynamics says that the entropy of an isolated system never decreases with time",
    "When the orchestra had tuned, the conductor put down her baton, turned to the audience and began to speak",
    "Our results suggest that the effect is smaller than was reported earlier, although the samples are not alike",
    "import math\n\ndef area(radius):\n    return math.pi * radius ** 2\n\nfor r in range(10):\n    print(area(r))",
    "Dear neighbour, thank you for watering the plants while we were away; the tomatoes have never looked so well",
    "In 1869 the two ends of the railway met in the desert, and a telegraph wire carried the news to both coasts",
    "Q: Why is the sky blue? A: Because the molecules of the air scatter short waves of light more than long ones",
    "She counted the steps again, and again there were thirteen going down and only twelve of them going back up",
    "The price of copper fell by four percent on Monday, after two of the largest mines went back to full work",
]
CASES: dict[str, tuple[Sequence[Transform], Sequence[hf.LogitsProcessor]]] = {
    "ancestral": ((), ()),
    "top-k 50": ((TopK(50),), (hf.TopKLogitsWarper(50),)),
    "top-p 0.9": ((TopP(0.9),), (hf.TopPLogitsWarper(0.9),)),
    "min-p 0.1": ((MinP(0.1),), (hf.MinPLogitsWarper(0.1),)),
    "typical 0.9": ((Typical(0.9),), (hf.TypicalLogitsWarper(0.9),)),
    "eta 3e-4": ((Eta(3e-4),), (hf.EtaLogitsWarper(3e-4),)),
    "T 0.8, top-p 0.9": (
        (Temperature(0.8), TopP(0.9)),
        (hf.TemperatureLogitsWarper(0.8), hf.TopPLogitsWarper(0.9)),
    ),
    "T 0.8, top-k 50, top-p 0.9": (
        (Temperature(0.8), TopK(50), TopP(0.9)),
        (hf.TemperatureLogitsWarper(0.8), hf.TopKLogitsWarper(50), hf.TopPLogitsWarper(0.9)),
    ),
}
Engine = Callable[[], Tensor]
REST = 0.02
"""Seconds before an engine begins: torch's threads keep a core busy for some milliseconds behind their work."""


def real_logits(name: str, rows: int) -> Tensor:
    """A model's scores for the next word of as many beginnings of the prompts."""
    model = us.load(name)
    texts = [model.tokenizer.encode(prompt) for prompt in PROMPTS]
    ends = range(max(map(len, texts)), 4, -1)
    beginnings = [ids[:end] for end in ends for ids in texts if end <= len(ids)][:rows]
    with torch.inference_mode():
        parts = [model.start(beginnings[i : i + 16])[0].logp_NV for i in range(0, len(beginnings), 16)]
    return torch.cat(parts).clone()


def engines(
    logits_NV: Tensor, ours: Sequence[Transform], theirs: Sequence[hf.LogitsProcessor]
) -> dict[str, Engine]:
    paths = [Row(row, 0, ()) for row in range(len(logits_NV))]
    dice = [Random(row) for row in range(len(logits_NV))]

    def hugging_face() -> Tensor:
        scores_NV = logits_NV.clone()
        for warper in theirs:
            scores_NV = warper(None, scores_NV)
        return torch.multinomial(scores_NV.softmax(dim=-1), num_samples=1).squeeze(1)

    def plain() -> Tensor:
        step = Step(logits_NV.log_softmax(dim=-1))
        return Multinomial().draw(reshape(step, paths, ours), step, dice)

    def unspool() -> Tensor:
        step = Step(logits_NV.log_softmax(dim=-1))
        return draw(step, paths, ours, Multinomial(), dice)[0]

    return {"Hugging Face": hugging_face, "plain": plain, "unspool": unspool}


def measure(
    all_of_them: dict[str, Engine], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of every engine in every round, warm."""
    seconds: dict[str, list[float]] = {name: [] for name in all_of_them}
    for engine in all_of_them.values():
        engine()
    for _ in range(rounds):
        for name, engine in all_of_them.items():
            time.sleep(REST)
            start = clock()
            engine()
            seconds[name].append(clock() - start)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[64])
    parser.add_argument(
        "--rules", nargs="+", choices=CASES, default=list(CASES), metavar="RULES", help="rows"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    clock = time.process_time if args.threads == 1 else time.perf_counter

    real_NV = real_logits(args.model, max(args.batches))
    kinds = {"real": real_NV, "flat": torch.randn(max(args.batches), real_NV.shape[1])}
    runs = [(batch, kind, case) for batch in args.batches for kind in kinds for case in args.rules]
    found = []
    for batch, kind, case in track(runs, description="measuring", console=Console(stderr=True)):
        seconds = measure(engines(kinds[kind][:batch], *CASES[case]), args.rounds, clock)
        ratios = [a / b for a, b in zip(seconds["Hugging Face"], seconds["unspool"], strict=True)]
        found.append(
            {
                "batch": batch,
                "scores": kind,
                "rules": case,
                "milliseconds": {name: 1000 * statistics.median(times) for name, times in seconds.items()},
                "ratio": statistics.median(ratios),
                "ratio_min": min(ratios),
                "ratio_max": max(ratios),
            }
        )
    show(found, f"a sampling step on batch × {real_NV.shape[1]} logits, {args.threads} thread(s)")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"threads": args.threads, "results": found}, indent=1))
    return 0


def show(found: list[dict], title: str) -> None:
    table = Table(title=title)
    for column in (
        "batch",
        "scores",
        "rules",
        "Hugging Face ms",
        "plain ms",
        "unspool ms",
        "ratio",
        "spread",
    ):
        table.add_column(column)
    for line in found:
        table.add_row(
            str(line["batch"]),
            line["scores"],
            line["rules"],
            *(f"{ms:.2f}" for ms in line["milliseconds"].values()),
            f"{line['ratio']:.1f}",
            f"{line['ratio_min']:.1f}–{line['ratio_max']:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
