"""No repeated n-grams: ban every token that would complete an n-gram for the second time.

    ban x  ⇔  (y_{t−n+1}, …, y_{t−1}, x) occurs in y_{<t}

Paulus, Xiong & Socher 2018, §2.5 (trigrams, in beam search).
papers.bib: paulus2018deep

n = 1 lets every token occur once. `prompt` says whether n-grams of the prompt count; by default they do, as
in Hugging Face, whose banned set this is. A row whose last tokens are all banned keeps the one that the
model finds most probable among the others; a ban on the whole vocabulary is lifted (see `scores.ban`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from unspool.decode.arguments import flag, whole
from unspool.decode.path import Path
from unspool.decode.transforms.occurrences import tokens_so_far
from unspool.decode.transforms.scores import ban_each, peaks
from unspool.protocols import Step


@dataclass(frozen=True)
class NoRepeatNgram:
    """Let no n-gram occur twice."""

    n: int
    prompt: bool = True

    def __post_init__(self) -> None:
        whole(self, "n", at_least=1, advice="Common values are 3 and 4.")
        flag(self, "prompt", advice="It says whether n-grams of the prompt count.")

    def __call__(self, scores_NV: Tensor, step: Step, history: Sequence[Path]) -> Tensor:
        """(N, V) → (N, V)."""
        peaks(scores_NV, history)
        V = scores_NV.shape[1]
        banned = [
            (row, token)
            for row, path in enumerate(history)
            for token in self._completions(tokens_so_far(path, self.prompt))
            if token < V
        ]
        return ban_each(scores_NV, step, banned)

    def _completions(self, said: tuple[int, ...]) -> set[int]:
        """The tokens that followed the last n − 1 tokens before."""
        start = said[len(said) - self.n + 1 :] if len(said) >= self.n else None
        ends = range(self.n - 1, len(said))
        return {said[end] for end in ends if said[end - self.n + 1 : end] == start}
