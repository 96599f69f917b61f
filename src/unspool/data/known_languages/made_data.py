"""Synthetic training data: sentences of a known language, or pairs of a small task.

    kind = "language"                               kind = "task"
    language = {kind = "zipf_markov", order = 1}    task = {kind = "addition", digits = 3}
    train = 20000                                   train = 20000

Every sentence is drawn independently, so that training and validation have the same true distribution and the
loss of a perfect model is the language's entropy. A task's sources are divided by a hash: none that is
validated on is ever trained on.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from unspool.arguments import Checked, integer, number
from unspool.config import choose, to_kind_dict
from unspool.data.examples import Pairs, Texts
from unspool.data.known_languages import LANGUAGES
from unspool.data.known_languages.known_language import FullSupport, KnownLanguage
from unspool.data.known_languages.tasks import TASKS
from unspool.data.rows import Data, OnProgress, Row
from unspool.tokenization.tokenizer import Tokenizer

MAX_DRAWS = 10_000
MAX_KEPT_ROWS = 20_000
"""Parts of at most so many rows stay in memory, because preparing data reads them two or three times."""


@dataclass(frozen=True, kw_only=True)
class SyntheticData(Checked, Data):
    """Generated rows, reproducible by seed."""

    train: int = integer(10_000, at_least=1)
    """Training rows."""
    valid: int = integer(500, at_least=0)
    """Validation rows."""
    seed: int = 0
    """Seed of the sampling; a language has another one."""

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:  # noqa: ARG002
        return self._rows("train", self.train)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:  # noqa: ARG002
        return self._rows("valid", self.valid) if self.valid else None

    @abstractmethod
    def sample_row(self, rng: Random, part: str) -> Row:
        """Sample a row of a part, "train" or "valid"."""

    def _rows(self, part: str, count: int) -> Iterator[Row]:
        if count > MAX_KEPT_ROWS:
            return self._sample_rows(part, count)
        if part not in self._kept_rows:
            self._kept_rows[part] = tuple(self._sample_rows(part, count))
        return iter(self._kept_rows[part])

    def _sample_rows(self, part: str, count: int) -> Iterator[Row]:
        rng = Random(f"{part} {self.seed}")
        for _ in range(count):
            yield self.sample_row(rng, part)

    @cached_property
    def _kept_rows(self) -> dict[str, tuple[Row, ...]]:
        return {}


@dataclass(frozen=True, kw_only=True)
class LanguageData(SyntheticData):
    """Sentences of a language with known probabilities; it brings its vocabulary, without [tokenizer]."""

    language: dict[str, Any] = field(default_factory=lambda: {"kind": "zipf_markov"})
    """Its kind, and the settings that differ from their defaults."""
    noise: float = number(0.0, at_least=0, below=1)
    """The probability that a token is drawn at random; above 0 no sentence is impossible."""

    row_format = Texts()

    def __post_init__(self) -> None:
        super().__post_init__()
        # All settings are stored, so that a run folder does not depend on later defaults.
        object.__setattr__(self, "language", to_kind_dict(LANGUAGES, self._noiseless))

    @cached_property
    def known(self) -> KnownLanguage[Any]:
        return FullSupport(self._noiseless, self.noise) if self.noise else self._noiseless

    @cached_property
    def _noiseless(self) -> KnownLanguage[Any]:
        return choose(LANGUAGES, self.language, "data.language")

    def new_tokenizer(self) -> Tokenizer:
        return self.known.new_tokenizer()

    def sample_row(self, rng: Random, part: str) -> Row:  # noqa: ARG002
        return (self.known.spell(self.known.sample(rng)),)


@dataclass(frozen=True, kw_only=True)
class TaskData(SyntheticData):
    """Pairs of a tiny task with one right answer."""

    task: dict[str, Any] = field(default_factory=lambda: {"kind": "copy"})
    """Its kind, and the settings that differ from their defaults."""

    row_format = Pairs()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "task", to_kind_dict(TASKS, self.known))

    @cached_property
    def known(self) -> Any:
        return choose(TASKS, self.task, "data.task")

    def sample_row(self, rng: Random, part: str) -> Row:
        """Sample a pair whose source belongs to the part."""
        for _ in range(MAX_DRAWS):
            source, target = self.known.pair(rng)
            if not self.valid or is_for_validation(source) == (part == "valid"):
                return source, target
        use = "validate on" if part == "valid" else "learn from"
        raise ValueError(
            f"{MAX_DRAWS:,} draws gave no source to {use}: the task has too few; make it longer or larger, "
            "or set valid = 0"
        )


def is_for_validation(source: str) -> bool:
    """True if the hash of a source puts it into the validation tenth, for any seed."""
    return hashlib.sha256(source.encode()).digest()[0] * 10 < 256
