"""What a search is asked to do, and what it tells after each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from unspool.decode.path import Path
from unspool.decode.rng import SampleCounter, stream_key

if TYPE_CHECKING:
    from unspool.protocols import Judge, TextWatch, Transform


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
    watches: tuple[TextWatch, ...] = ()
    """One per prompt, where the model has a tokenizer."""
    judge: Judge | None = None
    """Sees every path that has grown and not ended."""
    alternatives: int = 0
    """How many of the most probable tokens are kept at every step."""
    stop_ids: frozenset[int] = frozenset()
    """Tokens that end a text with finish "stop"."""
    answers: bool = False
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

    def content(self, path: Path) -> str | tuple[int, ...]:
        """What a path says: its text, or its tokens without their end where the model has no text."""
        if path.watch is not None:
            return path.watch.close()
        ended = path.tokens and path.tokens[-1] in self.eos | self.stop_ids
        return path.tokens[:-1] if ended else path.tokens

    def path(self, request: int, sample: int) -> Path:
        """A path with nothing after its prompt yet."""
        watch = self.watches[request] if self.watches else None
        before = self.target_prefixes if self.answers else self.prompts
        return Path(request, sample, before[request] if before else (), watch=watch)

    def stream_key(self, request: int, sample: int = 0) -> int:
        """What identifies the random stream of one sample of one prompt."""
        prompt, prefix = self._asked(request)
        return stream_key(self.seeds[request], prompt, self.first_samples[request] + sample, prefix)

    def _asked(self, request: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A prompt, and if it is a source what its answers begin with."""
        return self.prompts[request], self.path(request, 0).prompt if self.answers else ()

    def rng(self, path: Path) -> Random:
        """The random numbers that a path draws its tokens with."""
        return Random(self.stream_key(path.request, path.sample))

    def with_samples(self, n: int) -> Job:
        """The same job with n samples in the place of each: no two of them share a stream."""
        return replace(self, n=n, first_samples=tuple(first * n for first in self.first_samples))

    def paths(self) -> list[Path]:
        """The n empty paths of every prompt, in order."""
        requests = range(len(self.prompts))
        return [self.path(request, sample) for request in requests for sample in range(self.n)]

    def batches(self, rows_each: int = 1) -> Iterator[list[Path]]:
        """The same in batches that may be decoded side by side, where a path takes `rows_each` rows."""
        paths, size = self.paths(), max(1, self.rows // rows_each)
        for first in range(0, len(paths), size):
            yield paths[first : first + size]


@dataclass(frozen=True, slots=True)
class Frontier:
    """One step of a search: the paths still growing and those that ended just now."""

    live: tuple[Path, ...]
    ended: tuple[Path, ...] = ()
