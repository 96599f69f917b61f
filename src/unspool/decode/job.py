"""What a search is asked to do, and what it tells after each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unspool.decode.path import Path

if TYPE_CHECKING:
    from unspool.protocols import Judge, TextWatch, Transform


@dataclass(frozen=True, slots=True)
class Job:
    """What a search is asked to do."""

    prompts: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    """The most new tokens, for each prompt."""
    seeds: tuple[int, ...]
    """One per prompt: a row's randomness depends on its own seed and sample number only."""
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
    rows: int = 256
    """The most rows that are decoded side by side; no text depends on it."""
    first: tuple[Transform, ...] = ()
    """Transforms before those of the search: what a host, such as Hugging Face's `generate`, asks of any."""

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
        return Path(request, sample, () if self.answers else self.prompts[request], watch=watch)

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
