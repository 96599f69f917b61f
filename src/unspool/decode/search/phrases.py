"""How much of some required phrases a text already holds.

A phrase is held once its tokens stand in the text one after the other. Of a phrase not yet held, the longest
beginning that the text ends with counts as done (Knuth, Morris & Pratt's matching), so that a broken phrase
falls back as far as it must and no further.

    needed = Σ_{p not held} |p| − max_{p not held} done(p)

is a number of tokens that certainly completes the text, and writing the next token of the phrase with the
most done always lowers it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Phrases:
    """Phrases to be held; those that another one contains are held with it and dropped."""

    phrases: tuple[Phrase, ...]

    @classmethod
    def of(cls, phrases: Iterable[Sequence[int]]) -> Phrases:
        """Without those that stand inside another one."""
        distinct = list(dict.fromkeys(tuple(phrase) for phrase in phrases))
        return cls(
            tuple(p for p in distinct if not any(p != other and _inside(p, other) for other in distinct))
        )

    @property
    def size(self) -> int:
        """Tokens of all phrases: what an empty text needs."""
        return sum(map(len, self.phrases))

    @cached_property
    def borders(self) -> tuple[tuple[int, ...], ...]:
        """For each phrase and place, the longest proper beginning that also ends there."""
        return tuple(map(_borders, self.phrases))

    def begin(self) -> PhraseProgress:
        """The progress of an empty text."""
        return PhraseProgress(self, (0,) * len(self.phrases))


@dataclass(frozen=True)
class PhraseProgress:
    """How far one text has come. Immutable: beams fork."""

    phrases: Phrases
    done: tuple[int, ...]
    """Tokens done of each phrase; its whole length once it is held."""

    @property
    def missing(self) -> tuple[Phrase, ...]:
        """The phrases not yet held."""
        return tuple(phrase for phrase, done in self._open())

    @property
    def needed(self) -> int:
        """How many more tokens certainly suffice."""
        rest = self._open()
        return sum(len(phrase) for phrase, _ in rest) - max((done for _, done in rest), default=0)

    @property
    def wanted(self) -> list[int]:
        """The tokens that would carry a phrase on, in the order of the phrases."""
        return list(dict.fromkeys(phrase[done] for phrase, done in self._open()))

    def push(self, token: int) -> PhraseProgress:
        """With one more token."""
        moved = []
        for phrase, borders, done in zip(self.phrases.phrases, self.phrases.borders, self.done, strict=True):
            while 0 < done < len(phrase) and phrase[done] != token:
                done = borders[done - 1]
            moved.append(done + 1 if done < len(phrase) and phrase[done] == token else done)
        return PhraseProgress(self.phrases, tuple(moved))

    def _open(self) -> list[tuple[Phrase, int]]:
        pairs = zip(self.phrases.phrases, self.done, strict=True)
        return [(phrase, done) for phrase, done in pairs if done < len(phrase)]


def _inside(short: Phrase, long: Phrase) -> bool:
    return any(long[at : at + len(short)] == short for at in range(len(long) - len(short) + 1))


def _borders(phrase: Phrase) -> tuple[int, ...]:
    borders = [0]
    for token in phrase[1:]:
        at = borders[-1]
        while at and phrase[at] != token:
            at = borders[at - 1]
        borders.append(at + (phrase[at] == token))
    return tuple(borders)
