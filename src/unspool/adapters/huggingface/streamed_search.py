"""A search whose tokens go to a streamer of transformers as they become certain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unspool.decode.job import Frontier, Job
from unspool.protocols import Search, StepModel


@dataclass(frozen=True, eq=False)
class Streamed:
    """The same search; one that may change its mind (beam) shows everything at its end."""

    search: Search
    streamer: Any
    given_NT: Tensor
    """The prompt as `generate` has it: a streamer is given that first."""

    @property
    def streams(self) -> bool:
        """As the search does."""
        return self.search.streams

    def __call__(self, model: StepModel, job: Job) -> Iterator[Frontier]:
        """The frontiers of the search."""
        if (len(job.prompts), job.n) != (1, 1):
            raise ValueError("a streamer shows one text: give one prompt, and n=1")
        self.streamer.put(self.given_NT.cpu())
        shown = 0
        for frontier in self.search(model, job):
            for path in (*(frontier.live if self.streams else ()), *frontier.ended):
                for token in path.tokens[shown:]:
                    self.streamer.put(torch.tensor([token]))
                shown = len(path.tokens)
            yield frontier
        self.streamer.end()
