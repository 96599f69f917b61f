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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from unspool.config import choose, to_kind_dict
from unspool.data.examples import Pairs, Row, RowFormat, Texts
from unspool.data.known_languages import LANGUAGES
from unspool.data.known_languages.known_language import FullSupport, KnownLanguage, check_count, check_share
from unspool.data.known_languages.tasks import TASKS
from unspool.data.reading import OnProgress
from unspool.tokenization.tokenizer import Tokenizer

VALID_TENTHS = 1
MAX_DRAWS = 10_000


@dataclass(frozen=True, kw_only=True)
class SyntheticData:
    """Generated rows, reproducible by seed."""

    train: int = 10_000
    """Training rows."""
    valid: int = 500
    """Validation rows."""
    seed: int = 0
    """Seed of the sampling; a language has another one."""

    def __post_init__(self) -> None:
        check_count("train", self.train)
        check_count("valid", self.valid, least=0)

    def files(self) -> dict[str, tuple[str, ...]]:
        """None."""
        return {}

    @property
    def holds_out(self) -> bool:
        """False: validation rows are sampled separately."""
        return False

    def held(self, count: int, seed: int) -> npt.NDArray[np.bool_]:
        """No row is."""
        del seed
        return np.zeros(count, dtype=np.bool_)

    def _rng(self, part: str) -> Random:
        return Random(f"{part} {self.seed}")


@dataclass(frozen=True, kw_only=True)
class LanguageData(SyntheticData):
    """Sentences of a language whose truth is known, one a row. It brings its vocabulary: no [text]."""

    language: dict[str, Any] = field(default_factory=lambda: {"kind": "zipf_markov"})
    """Its kind, and its settings where they are not the usual ones."""
    noise: float = 0.0
    """The probability that a token is drawn at random; above 0 no sentence is impossible."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("noise", self.noise)
        # All settings are stored, so that a run folder does not depend on later defaults.
        object.__setattr__(self, "language", to_kind_dict(LANGUAGES, self._noiseless))

    @cached_property
    def known(self) -> KnownLanguage[Any]:
        """The language, with its truth."""
        return FullSupport(self._noiseless, self.noise) if self.noise else self._noiseless

    @cached_property
    def _noiseless(self) -> KnownLanguage[Any]:
        return choose(LANGUAGES, self.language, "data.language")

    def codec(self) -> Tokenizer:
        """The tokenizer whose ids are those of the language."""
        return self.known.codec()

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Sentences to learn from."""
        del advance
        return self._rows("train", self.train)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        """Other sentences."""
        del advance
        return self._rows("valid", self.valid) if self.valid else None

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """A row is a text."""
        del rows
        return Texts()

    def _rows(self, part: str, count: int) -> Iterator[Row]:
        random = self._rng(part)
        for _ in range(count):
            yield (self.known.spell(self.known.sample(random)),)


@dataclass(frozen=True, kw_only=True)
class TaskData(SyntheticData):
    """Pairs of a tiny task, whose one right answer is known."""

    task: dict[str, Any] = field(default_factory=lambda: {"kind": "copy"})
    """Its kind, and its settings where they are not the usual ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "task", to_kind_dict(TASKS, self.known))

    @cached_property
    def known(self) -> Any:
        """The task, with its truth."""
        return choose(TASKS, self.task, "data.task")

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Pairs to learn from."""
        del advance
        return self._rows("train", self.train, valid=False)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        """Pairs whose sources are never learnt from."""
        del advance
        return self._rows("valid", self.valid, valid=True) if self.valid else None

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """A row is a source and its target."""
        del rows
        return Pairs()

    def _rows(self, part: str, count: int, valid: bool) -> Iterator[Row]:
        random = self._rng(part)
        for _ in range(count):
            yield self._pair(random, valid)

    def _pair(self, random: Random, valid: bool) -> Row:
        for _ in range(MAX_DRAWS):
            source, target = self.known.pair(random)
            if not self.valid or is_for_validation(source) == valid:
                return source, target
        raise ValueError(
            f"{MAX_DRAWS:,} draws gave no source to {'validate on' if valid else 'learn from'}: the task has "
            "too few; make it longer or larger, or set valid = 0"
        )


def is_for_validation(source: str) -> bool:
    """True if the hash of a source puts it into the validation tenth, for any seed."""
    return hashlib.sha256(source.encode()).digest()[0] * 10 < 256 * VALID_TENTHS
