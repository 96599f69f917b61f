"""One hypothesis of a search, as it grows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspool.decode.job import Job
    from unspool.protocols import Finish, TextWatch


@dataclass(frozen=True, slots=True)
class Ranked:
    """The most probable tokens at one step, best first: by the model itself, and in what was drawn from."""

    model: tuple[tuple[int, float], ...]
    drawn: tuple[tuple[int, float], ...]
    texts: Mapping[int, str] = field(default_factory=dict, compare=False)
    """Each of these tokens as people read it, where the model has a tokenizer."""


@dataclass(frozen=True, slots=True)
class Path:
    """One hypothesis: its prompt, what was chosen after it, and how probable each choice was."""

    request: int
    """Which of the prompts it answers."""
    sample: int
    """Which of the n answers to that prompt (for a ranked search, its rank)."""
    prompt: tuple[int, ...]
    """The tokens that it continues: the prompt, or the prefix of an answer where the prompt is a source."""
    tokens: tuple[int, ...] = ()
    logps: tuple[float, ...] = ()
    """log p of each token by the model itself."""
    scores: tuple[float, ...] = ()
    """log p of each token in the distribution that it was drawn from; what it added to the sum of a search
    that adds up another score (Step.score_NV)."""
    finish: Finish | None = None
    watch: TextWatch | None = None
    total: float | None = None
    """The whole hypothesis's score, where the search ranks hypotheses."""
    ranked: tuple[Ranked, ...] = ()
    """What else each token might have been, where the job asks for it."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def extend(self, token: int, logp: float, score: float, job: Job, ranked: Ranked | None = None) -> Path:
        """The path with one more token, ended if that token, its text, the job's limit or judge says so."""
        if math.isnan(logp) or math.isnan(score):
            raise ValueError(
                f"the model gave token {token} after {len(self.tokens)} new ones a log-probability or score "
                "that is no number (NaN). Look for an overflow in the model (half precision?) or in its "
                "weights."
            )
        tokens = (*self.tokens, token)
        watch = self.watch
        finish: Finish | None = None
        if token in job.eos:
            finish = "eos"
        elif token in job.stop_ids:
            finish = "stop"
        else:
            if watch is not None:
                watch = watch.push(token)
                finish = watch.finish
            if finish is None and len(tokens) >= job.limits[self.request]:
                finish = "length"
        path = Path(  # not `replace`, which takes longer than all else: a beam of 5 grows ten a step
            self.request,
            self.sample,
            self.prompt,
            tokens,
            (*self.logps, logp),
            (*self.scores, score),
            finish,
            watch,
            self.total,
            self.ranked if ranked is None else (*self.ranked, ranked),
            self.notes,
        )
        return path if finish is not None or job.judge is None else job.judge(path)
