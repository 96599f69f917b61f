"""Texts with hidden places on their way to paths: what mask-predict and masked diffusion share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from unspool.decode.job import Job
from unspool.decode.path import Path
from unspool.protocols import Infilling, StepModel


def infilling(model: StepModel, search: Any) -> Infilling:
    """What fills hidden places, or an error for a model that does not."""
    if model.infilling is None:
        raise ValueError(
            f"{search!r} fills hidden places, and a {type(model).__name__} says one token after another: "
            "decode it by Greedy(), Sample() or Beam(), or train a masked_lm or masked_seq2seq"
        )
    return model.infilling


@dataclass
class Canvas:
    """A text of a fixed length; `tokens` has the id `hidden` where nothing is chosen yet."""

    path: Path
    tokens: list[int]
    hidden: int
    logps: list[float]
    """log p of each token when it was chosen."""
    foreseen: float = 0.0
    """log p of its length."""

    @classmethod
    def blank(cls, path: Path, length: int, hidden: int, foreseen: float = 0.0) -> Canvas:
        """With every place hidden."""
        return cls(path, [hidden] * length, hidden, [0.0] * length, foreseen)

    @property
    def places(self) -> list[int]:
        """Where nothing is chosen yet."""
        return [at for at, token in enumerate(self.tokens) if token == self.hidden]

    @property
    def score(self) -> float:
        """The mean log p of its tokens (Ghazvininejad et al. 2019, §3.3)."""
        return sum(self.logps) / len(self.logps)

    def choose(self, at: int, token: int, logp: float) -> None:
        """Put a token at a place."""
        self.tokens[at], self.logps[at] = token, logp

    def hide(self, at: int) -> None:
        """Take it away again."""
        self.tokens[at] = self.hidden

    def grown(self, path: Path, job: Job, *, last: bool) -> Path:
        """The path with the tokens up to the first hidden place; the `last` time it ends in any case."""
        for at in range(len(path.tokens), len(self.tokens)):
            if path.finish is not None or self.tokens[at] == self.hidden:
                break
            path = path.extend(self.tokens[at], self.logps[at], self.logps[at], job)
        return replace(path, finish="length") if last and path.finish is None else path


def filled(model: Infilling, job: Job, canvases: Sequence[Canvas]) -> list[Tensor]:
    """log p at every place of each, (T, V)."""
    return model.fill([job.prompts[it.path.request] for it in canvases], [it.tokens for it in canvases])
