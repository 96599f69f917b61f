"""Hypotheses of a decoder, the Job it works on, and the SearchSteps it yields."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

from unspool.decode.rng import SampleCounter, stream_key

if TYPE_CHECKING:
    from unspool.interfaces import Detokenizer, FinishReason, StopCondition, Transform


@dataclass(frozen=True, slots=True)
class Ranked:
    """The most probable tokens at one step, best first: of the model, and of the transformed distribution."""

    model: tuple[tuple[int, float], ...]
    drawn: tuple[tuple[int, float], ...]
    texts: Mapping[int, str] = field(default_factory=dict, compare=False)
    """The text of each of these tokens if the model has a tokenizer."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A prompt, the tokens chosen after it, and their log-probabilities."""

    request: int
    """Index of its prompt."""
    sample: int
    """Index among the n texts of that prompt; its rank if the decoder ranks."""
    prompt: tuple[int, ...]
    """The tokens that it continues: the prompt, or the target prefix of an encoder–decoder."""
    tokens: tuple[int, ...] = ()
    logps: tuple[float, ...] = ()
    """log p of each token by the model, before any transform."""
    scores: tuple[float, ...] = ()
    """log p of each token in the transformed distribution, or its score if the decoder sums Step.score_NV."""
    finish_reason: FinishReason | None = None
    detokenizer: Detokenizer | None = None
    total: float | None = None
    """Score of the whole hypothesis if the decoder ranks hypotheses."""
    ranked: tuple[Ranked, ...] = ()
    """The alternatives of each token if the job asks for them."""
    notes: Mapping[str, Any] = field(default_factory=dict)

    def extend(
        self, token: int, logp: float, score: float, job: Job, ranked: Ranked | None = None
    ) -> Hypothesis:
        """Append a token; a finish_reason is set if the token, the text, the limit or a condition ends it."""
        if math.isnan(logp) or math.isnan(score):
            raise ValueError(
                f"token {token} after {len(self.tokens)} new ones has a log-probability or score of NaN: "
                "check the model for overflow (half precision?) and its weights"
            )
        tokens = (*self.tokens, token)
        detokenizer = self.detokenizer
        finish_reason: FinishReason | None = None
        if token in job.eos:
            finish_reason = "eos"
        elif token in job.stop_ids:
            finish_reason = "stop"
        else:
            if detokenizer is not None:
                detokenizer = detokenizer.push(token)
                finish_reason = detokenizer.finish_reason
            if finish_reason is None and len(tokens) >= job.limits[self.request]:
                finish_reason = "length"
        grown = tokens, (*self.logps, logp), (*self.scores, score), finish_reason, detokenizer
        all_ranked = self.ranked if ranked is None else (*self.ranked, ranked)
        # Not `replace`, which is several times slower.
        hypothesis = Hypothesis(
            self.request, self.sample, self.prompt, *grown, self.total, all_ranked, self.notes
        )
        if finish_reason is not None or job.stop_condition is None:
            return hypothesis
        return job.stop_condition(hypothesis)


@dataclass(frozen=True, slots=True)
class Job:
    """The checked request that a decoder works on."""

    prompts: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    """Maximum of new tokens for each prompt."""
    seeds: tuple[int, ...]
    """One per prompt. Seed, prompt and sample number determine the random stream (`decode.rng`)."""
    n: int = 1
    eos: frozenset[int] = frozenset()
    detokenizers: tuple[Detokenizer, ...] = ()
    """One per prompt if the model has a tokenizer."""
    stop_condition: StopCondition | None = None
    """Called for every hypothesis after each token; may end it."""
    alternatives: int = 0
    """How many of the most probable tokens to record at every step."""
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end a text with finish_reason "stop"."""
    is_encoder_decoder: bool = False
    """Whether the prompts are sources of an encoder–decoder."""
    target_prefixes: tuple[tuple[int, ...], ...] = ()
    """For encoder–decoders: the first tokens of each target."""
    rows: int = 256
    """Maximum of sequences decoded at once; it does not change the texts."""
    first: tuple[Transform, ...] = ()
    """Transforms before those of the decoder, such as the logits processors of Hugging Face's `generate`."""
    first_samples: tuple[int, ...] = ()
    """Number of the first sample of each prompt; computed unless the prompts are a part of a corpus."""

    def __post_init__(self) -> None:
        if not self.first_samples:
            requests = range(len(self.prompts))
            keys = [(self.seeds[request], *self._stream_prompt(request)) for request in requests]
            object.__setattr__(self, "first_samples", SampleCounter().first_samples(keys, self.n))

    @property
    def ends(self) -> int:
        """Number of tokens that end a text."""
        return len(self.eos | self.stop_ids)

    def content(self, hypothesis: Hypothesis) -> str | tuple[int, ...]:
        """The text of a hypothesis, or without a tokenizer its tokens, except the end token."""
        if hypothesis.detokenizer is not None:
            return hypothesis.detokenizer.close()
        ended = hypothesis.tokens and hypothesis.tokens[-1] in self.eos | self.stop_ids
        return hypothesis.tokens[:-1] if ended else hypothesis.tokens

    def hypothesis(self, request: int, sample: int) -> Hypothesis:
        detokenizer = self.detokenizers[request] if self.detokenizers else None
        before = self.target_prefixes if self.is_encoder_decoder else self.prompts
        return Hypothesis(request, sample, before[request] if before else (), detokenizer=detokenizer)

    def stream_key(self, request: int, sample: int = 0) -> int:
        """Key of the random stream of one sample of one prompt."""
        prompt, prefix = self._stream_prompt(request)
        return stream_key(self.seeds[request], prompt, self.first_samples[request] + sample, prefix)

    def _stream_prompt(self, request: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The prompt, and the target prefix if it is a source."""
        return self.prompts[request], self.hypothesis(request, 0).prompt if self.is_encoder_decoder else ()

    def rng(self, hypothesis: Hypothesis) -> Random:
        return Random(self.stream_key(hypothesis.request, hypothesis.sample))

    def with_samples(self, n: int) -> Job:
        """The same job with n samples in the place of each, all with different random streams."""
        return replace(self, n=n, first_samples=tuple(first * n for first in self.first_samples))

    def hypotheses(self) -> list[Hypothesis]:
        requests = range(len(self.prompts))
        return [self.hypothesis(request, sample) for request in requests for sample in range(self.n)]

    def batches(self, rows_each: int = 1) -> Iterator[list[Hypothesis]]:
        """The empty hypotheses in batches of at most `rows` rows, if each takes `rows_each` rows."""
        hypotheses, size = self.hypotheses(), max(1, self.rows // rows_each)
        for first in range(0, len(hypotheses), size):
            yield hypotheses[first : first + size]


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One step of a decoder: the hypotheses that still grow and those that ended in this step."""

    live: tuple[Hypothesis, ...]
    ended: tuple[Hypothesis, ...] = ()


def split_ended(hypotheses: Sequence[Hypothesis]) -> SearchStep:
    """The SearchStep of hypotheses of which some have ended."""
    return SearchStep(
        tuple(hypothesis for hypothesis in hypotheses if hypothesis.finish_reason is None),
        tuple(hypothesis for hypothesis in hypotheses if hypothesis.finish_reason is not None),
    )
