"""Marian's weights in unspool: steps by torch or compiled."""

from __future__ import annotations

import torch

import unspool as us
from peers.conversation import converse
from peers.work import Work


class Unspool:
    version = f"torch {torch.__version__}"

    def __init__(self, folder: str, threads: int, engine: str) -> None:
        torch.set_num_threads(threads)
        self.model = us.load(folder, engine=engine)

    def generate(self, work: Work) -> list[list[int]]:
        search = us.Greedy() if work.beams == 1 else us.Beam(work.beams)
        outputs = us.generate(self.model, work.prompts, search, max_new_tokens=work.new)
        return [list(output.tokens) for output in outputs]


if __name__ == "__main__":
    converse(Unspool)
