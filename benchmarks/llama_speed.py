"""Decode a GGUF file with llama.cpp through unspool, and with llama-cpp-python's own loop.

OMP_NUM_THREADS=1 build/llama/bin/python benchmarks/llama_speed.py model.q8_0.gguf      (`make llama` makes it)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import llama_cpp
import torch

import unspool as us

PROMPT = "Once upon a time, in a village by the sea,"
NEW, SAMPLED, ROWS = 64, 32, 8


def best(work: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the quickest of several runs, after one that is not counted."""
    work()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def main(path: str) -> None:
    model = us.load(path, engine="llama.cpp")
    ids = model.tokenizer.encode(PROMPT)
    theirs = llama_cpp.Llama(path, n_ctx=512, n_threads=torch.get_num_threads(), verbose=False)

    def their_greedy() -> None:
        theirs.reset()
        for place, _ in enumerate(theirs.generate(ids, temp=0.0, repeat_penalty=1.0, top_k=1), 1):
            if place == NEW:
                return

    def sampled(rows: int, seed: int = 0) -> None:
        search = us.Sample(us.Temperature(0.8), us.TopP(0.95))
        us.generate(model, [ids] * rows, search, max_new_tokens=SAMPLED, seed=[seed + n for n in range(rows)])

    own = best(their_greedy) / NEW
    ours = best(lambda: us.generate(model, ids, us.Greedy(), max_new_tokens=NEW)) / NEW
    print(f"greedy, ms a token: llama-cpp-python {1e3 * own:.1f}, unspool {1e3 * ours:.1f}")
    together = best(lambda: sampled(ROWS))
    apart = best(lambda: [sampled(1, n) for n in range(ROWS)])
    print(f"{ROWS} samples of {SAMPLED} tokens: in one batch {together:.2f} s, one by one {apart:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1])
