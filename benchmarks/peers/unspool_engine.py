"""unspool itself: steps by torch or compiled, weights as they are stored, in float32 or in int8."""

from __future__ import annotations

import torch

import unspool as us
from peers.conversation import converse
from peers.work import Work


class Unspool:
    version = f"torch {torch.__version__}"

    def __init__(self, file: str, threads: int, engine: str, weights: str) -> None:
        torch.set_num_threads(threads)
        self.model = us.load(file, engine=engine, weights=weights)
        # Every engine generates the same number of tokens.
        object.__setattr__(self.model.tokenizer, "eos_ids", frozenset())

    def generate(self, work: Work) -> list[list[int]]:
        outputs = us.generate(self.model, work.prompts, search(work), max_new_tokens=work.new, seed=0)
        return [list(output.tokens) for output in outputs]


def search(work: Work) -> us.Greedy | us.Sample | us.Beam:
    if work.top_p is not None:
        return us.Sample(us.TopP(work.top_p))
    return us.Greedy() if work.beams == 1 else us.Beam(work.beams, length_penalty=us.decode.Sum())


if __name__ == "__main__":
    converse(Unspool)
