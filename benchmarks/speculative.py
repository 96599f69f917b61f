"""Speed of speculative decoding by prompt lookup, beside Greedy, on texts that repeat their prompt more or less.

    python benchmarks/speculative.py                                   # a few minutes
    python benchmarks/speculative.py --weights float32 --lengths 4 8 --rounds 3

The tasks are to summarise a paragraph, to edit code, and to answer a question, four prompts of each in the model's chat
template, with greedy texts of --new-tokens tokens or up to the end of the answer. "alone" decodes prompt after prompt,
"together" all of a task in one batch. The times are without the prompts: those of the whole text minus those of one token.
Ratios are taken within a round; medians of the rounds. Texts must equal those of Greedy with float32 weights and with a
draft of any length, because a token's log-probabilities have the same bits in any batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import unspool as us

PARAGRAPHS = (
    "The lighthouse at Cape Morrow was built in 1871 after three ships were lost on the reef in a single winter. Its lamp "
    "could be seen from eighteen miles away, and its keepers, always two of them, wound the clockwork of the lens every "
    "four hours. In 1954 the lamp became electric, and in 1988 the last keeper left. Today the tower is a museum.",
    "Honey bees tell each other where flowers are by dancing. A bee that has found food returns to the hive and walks in "
    "a straight line while it shakes its body, then circles back and repeats the walk. The angle of the line shows the "
    "direction of the food relative to the sun, and the length of the walk shows the distance of the food.",
    "The city council decided on Tuesday to close Market Street to cars from May to September. Shop owners had asked for "
    "a trial of one month, but the council said that one month would show too little. Buses and bicycles may still use "
    "the street, and deliveries are allowed before ten in the morning. The council will decide in October.",
    "Glass is made of sand, soda and lime, which melt together at about 1,500 degrees. The soda lowers the melting point "
    "of the sand, and the lime keeps the glass from dissolving in water. Window glass floats on a bath of molten tin "
    "while it cools, so that both of its sides are flat. Old windows are uneven because they were blown.",
)
FUNCTIONS = (
    "def mean(values):\n    total = 0\n    for value in values:\n        total = total + value\n    return total / len(values)\n",
    "def count_words(text):\n    counts = {}\n    for word in text.split():\n        if word not in counts:\n"
    "            counts[word] = 0\n        counts[word] = counts[word] + 1\n    return counts\n",
    "class Account:\n    def __init__(self, owner, balance):\n        self.owner = owner\n        self.balance = balance\n\n"
    "    def deposit(self, amount):\n        self.balance = self.balance + amount\n",
    "def find(items, wanted):\n    for index in range(len(items)):\n        if items[index] == wanted:\n"
    "            return index\n    return -1\n",
)
QUESTIONS = (
    "Why is the sky blue?",
    "How do I make a simple tomato soup?",
    "What is the difference between a lake and a pond?",
    "Give me three tips for learning a new language.",
)
TASKS = {
    "summarise": [f"Summarise this text in two sentences:\n\n{it}" for it in PARAGRAPHS],
    "edit code": [f"Add a docstring to this code and repeat the whole code:\n\n{it}" for it in FUNCTIONS],
    "chat": list(QUESTIONS),
}


def seconds(
    model: Any, prompts: Sequence[list[int]], decoder: Any, new: int, together: bool
) -> tuple[float, list]:
    """The time of all texts without their prompts, and the texts."""

    def measure(limit: int) -> tuple[float, list]:
        begun = time.perf_counter()
        if together:
            outs = us.generate(model, prompts, decoder, max_new_tokens=limit)
        else:
            outs = [us.generate(model, prompt, decoder, max_new_tokens=limit) for prompt in prompts]
        return time.perf_counter() - begun, outs

    first, _ = measure(1)
    whole, outs = measure(new)
    return whole - first, outs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2", help="a model with a chat template")
    parser.add_argument("--weights", nargs="+", default=["stored", "float32"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[4, 8], help="drafted tokens")
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    different = 0
    for weights in args.weights:
        model = us.load(args.model, weights=weights)
        table = Table(
            title=f"{args.model}, weights {weights}, {args.threads} thread(s), {args.rounds} rounds"
        )
        names = ("task", "rows", "Greedy, tokens/s", "drafted", "× Greedy", "accepted", "tokens a round")
        for name in names:
            table.add_column(name, justify="right")
        for task, texts in TASKS.items():
            prompts = [list(model.tokenizer.chat([{"role": "user", "content": text}])) for text in texts]
            for together in (False, True):
                decoders = {0: us.Greedy()} | {
                    n: us.Speculative(us.PromptLookup(), us.ArgMax(), length=n) for n in args.lengths
                }
                times: dict[int, list[float]] = {n: [] for n in decoders}
                for _ in range(args.rounds):
                    found = {}
                    for n, decoder in decoders.items():
                        spent, found[n] = seconds(model, prompts, decoder, args.new_tokens, together)
                        times[n].append(spent)
                tokens = sum(len(out.tokens) - 1 for out in found[0])
                for n in args.lengths:
                    different += [out.tokens for out in found[n]] != [out.tokens for out in found[0]]
                    ratio = median(plain / own for plain, own in zip(times[0], times[n], strict=True))
                    stats = [out.stats for out in found[n]]
                    sums = {key: sum(it[key] for it in stats) for key in ("accepted", "proposed", "rounds")}
                    table.add_row(
                        task,
                        "together" if together else "alone",
                        f"{tokens / median(times[0]):.0f}",
                        f"at most {n}",
                        f"{ratio:.2f}",
                        f"{sums['accepted'] / max(1, sums['proposed']):.0%} of {sums['proposed']}",
                        f"{(tokens + len(prompts)) / sums['rounds']:.2f}",
                    )
        Console(width=120).print(table)
    print(f"{different} texts differ from Greedy's" if different else "all texts equal Greedy's")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
