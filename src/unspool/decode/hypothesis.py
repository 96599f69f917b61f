"""One hypothesis of a search, as it grows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from unspool.decode.rng import SampleCounter, stream_key

if TYPE_CHECKING:
    from unspool.interfaces import Detokenizer, FinishReason, StopCondition, Transform


@dataclass(frozen=True, slots=True)
class Ranked:
    """The most probable tokens at one step, best first: by the model itself, and in what was drawn from."""

    model: tuple[tuple[int, float], ...]
    drawn: tuple[tuple[int, float], ...]
    texts: Mapping[int, str] = field(default_factory=dict, compare=False)
    """Each of these tokens as people read it, where the model has a tokenizer."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
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
    finish_reason: FinishReason | None = None
    detokenizer: Detokenizer | None = None
    total: float | None = None
    """The whole hypothesis's score, where the search ranks hypotheses."""
    ranked: tuple[Ranked, ...] = ()
    """What else each token might have been, where the job asks for it."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def extend(
        self, token: int, logp: float, score: float, job: Job, ranked: Ranked | None = None
    ) -> Hypothesis:
        """The path with one more token, ended if that token, its text, the job's limit or judge says so."""
        if math.isnan(logp) or math.isnan(score):
            raise ValueError(
                f"the model gave token {token} after {len(self.tokens)} new ones a log-probability or score "
                "that is no number (NaN). Look for an overflow in the model (half precision?) or in its "
                "weights."
            )
        tokens = (*self.tokens, token)
        watch = self.detokenizer
        finish_reason: FinishReason | None = None
        if token in job.eos:
            finish_reason = "eos"
        elif token in job.stop_ids:
            finish_reason = "stop"
        else:
            if watch is not None:
                watch = watch.push(token)
                finish_reason = watch.finish_reason
            if finish_reason is None and len(tokens) >= job.limits[self.request]:
                finish_reason = "length"
        path = Hypothesis(  # not `replace`, which takes longer than all else: a beam of 5 grows ten a step
            self.request,
            self.sample,
            self.prompt,
            tokens,
            (*self.logps, logp),
            (*self.scores, score),
            finish_reason,
            watch,
            self.total,
            self.ranked if ranked is None else (*self.ranked, ranked),
            self.notes,
        )
        return path if finish_reason is not None or job.stop_condition is None else job.stop_condition(path)


# What a search is asked to do, and what it tells after each step.


@dataclass(frozen=True, slots=True)
class Job:
    """What a search is asked to do."""

    prompts: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    """The most new tokens, for each prompt."""
    seeds: tuple[int, ...]
    """One per prompt: with the prompt and the sample number it decides what a row draws (`decode.rng`)."""
    n: int = 1
    eos: frozenset[int] = frozenset()
    detokenizers: tuple[Detokenizer, ...] = ()
    """One per prompt, where the model has a tokenizer."""
    stop_condition: StopCondition | None = None
    """Sees every path that has grown and not ended."""
    alternatives: int = 0
    """How many of the most probable tokens are kept at every step."""
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end a text with finish "stop"."""
    is_encoder_decoder: bool = False
    """Whether the prompts are sources (Answering), which no text continues."""
    target_prefixes: tuple[tuple[int, ...], ...] = ()
    """Where the prompts are sources: the tokens that each answer begins with already."""
    rows: int = 256
    """The most rows that are decoded side by side; no text depends on it."""
    first: tuple[Transform, ...] = ()
    """Transforms before those of the search: what a host, such as Hugging Face's `generate`, asks of any."""
    first_samples: tuple[int, ...] = ()
    """Of each prompt, the number of its first sample; counted here unless a corpus is counted elsewhere."""

    def __post_init__(self) -> None:
        if not self.first_samples:
            asked = [(self.seeds[request], *self._asked(request)) for request in range(len(self.prompts))]
            object.__setattr__(self, "first_samples", SampleCounter().first_samples(asked, self.n))

    @property
    def ends(self) -> int:
        """How many tokens end a text."""
        return len(self.eos | self.stop_ids)

    def content(self, path: Hypothesis) -> str | tuple[int, ...]:
        """What a path says: its text, or its tokens without their end where the model has no text."""
        if path.detokenizer is not None:
            return path.detokenizer.close()
        ended = path.tokens and path.tokens[-1] in self.eos | self.stop_ids
        return path.tokens[:-1] if ended else path.tokens

    def path(self, request: int, sample: int) -> Hypothesis:
        """A path with nothing after its prompt yet."""
        watch = self.detokenizers[request] if self.detokenizers else None
        before = self.target_prefixes if self.is_encoder_decoder else self.prompts
        return Hypothesis(request, sample, before[request] if before else (), detokenizer=watch)

    def stream_key(self, request: int, sample: int = 0) -> int:
        """What identifies the random stream of one sample of one prompt."""
        prompt, prefix = self._asked(request)
        return stream_key(self.seeds[request], prompt, self.first_samples[request] + sample, prefix)

    def _asked(self, request: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A prompt, and if it is a source what its answers begin with."""
        return self.prompts[request], self.path(request, 0).prompt if self.is_encoder_decoder else ()

    def rng(self, path: Hypothesis) -> Random:
        """The random numbers that a path draws its tokens with."""
        return Random(self.stream_key(path.request, path.sample))

    def with_samples(self, n: int) -> Job:
        """The same job with n samples in the place of each: no two of them share a stream."""
        return replace(self, n=n, first_samples=tuple(first * n for first in self.first_samples))

    def paths(self) -> list[Hypothesis]:
        """The n empty paths of every prompt, in order."""
        requests = range(len(self.prompts))
        return [self.path(request, sample) for request in requests for sample in range(self.n)]

    def batches(self, rows_each: int = 1) -> Iterator[list[Hypothesis]]:
        """The same in batches that may be decoded side by side, where a path takes `rows_each` rows."""
        paths, size = self.paths(), max(1, self.rows // rows_each)
        for first in range(0, len(paths), size):
            yield paths[first : first + size]


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One step of a search: the paths still growing and those that ended just now."""

    live: tuple[Hypothesis, ...]
    ended: tuple[Hypothesis, ...] = ()
