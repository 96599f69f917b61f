"""A blinded set of texts to rate, and the answers to it: a folder of three files.

    set.json        what raters see: prompts and texts, no system's name
    key.json        which systems said which text; only the report opens it
    answers.jsonl   what raters said, one line each, only ever appended to

The first two are written once, whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from unspool.evaluate.rating import answer_file
from unspool.evaluate.rating.answer_file import Answer
from unspool.evaluate.rating.scales import SCALES, Scale
from unspool.printable import printable

KIND = "unspool rating set 1"
SET, KEY, ANSWERS = "set.json", "key.json", "answers.jsonl"
LONGEST_NAME = 80


@dataclass(frozen=True)
class RatingItem:
    """What a rater sees at once."""

    id: str
    prompt: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Said:
    """Who said the texts of an item."""

    prompt: int
    """The number of the prompt: texts of one prompt are compared in pairs."""
    systems: tuple[tuple[str, ...], ...]
    """For each text of the item, the systems that said it, word for word."""


@dataclass(frozen=True)
class Key:
    """Who said what."""

    systems: tuple[str, ...]
    items: Mapping[str, Said]
    ties: tuple[tuple[str, str], ...]
    """Pairs of systems that said the same to a prompt: nobody need be asked which is better."""


@dataclass(frozen=True)
class RatingSet:
    """A set in a folder. Any number of processes may hold it and record answers at once."""

    folder: Path
    scale: Scale
    seed: int
    items: tuple[RatingItem, ...]

    @classmethod
    def load(cls, folder: str | Path) -> RatingSet:
        """The set that `prepare` has written."""
        folder = Path(folder)
        path = folder / SET
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} holds no {SET}: prepare a set there first (unspool rate prepare)"
            )
        found = _read_json(path)
        try:
            if found["kind"] != KIND:
                raise ValueError(f"its kind is {found['kind']!r}")
            items = tuple(
                RatingItem(_text(it["id"]), _text(it["prompt"]), tuple(map(_text, it["texts"])))
                for it in found["items"]
            )
            scale = SCALES[found["scale"]]
            if any(len(it.texts) != scale.texts for it in items) or len({it.id for it in items}) < len(items):
                raise ValueError("its items are not those of its scale")
            return cls(folder, scale, int(found["seed"]), items)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a rating set as unspool writes them ({error})") from None

    def next(self, rater: str) -> RatingItem | None:
        """What this rater has not answered yet, in an order of the rater's own; None when all is answered."""
        done = {it.item for it in self.answers() if it.rater == check_rater(rater)}
        return next((it for it in self.order(rater) if it.id not in done), None)

    def order(self, rater: str) -> list[RatingItem]:
        """All items in this rater's order: always the same, and another for another rater."""
        items = list(self.items)
        Random(f"{self.seed} {check_rater(rater)}").shuffle(items)
        return items

    def record(self, rater: str, item: str, choice: str) -> Answer:
        """Write an answer to the disk. A second answer of a rater to an item replaces the first."""
        answer = self.checked(rater, item, choice)
        answer_file.append(self._answers, [answer])
        return answer

    def record_all(self, answers: list[Answer]) -> None:
        """Write many answers that `checked` has made, all at once."""
        if answers:
            answer_file.append(self._answers, answers)

    def checked(self, rater: str, item: str, choice: str) -> Answer:
        """An answer that could be recorded; a ValueError where it could not."""
        if not isinstance(item, str) or item not in self.by_id:
            raise ValueError(f"item {item!r:.40} is none of the {len(self.items)} of {self.folder}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Answer(check_rater(rater), item, self.scale.check(choice), now)

    def answers(self) -> list[Answer]:
        """What counts: of each rater and item the last answer, in the order of the first ones."""
        found: dict[tuple[str, str], Answer] = {}
        for answer in answer_file.read(self._answers):
            if answer.item not in self.by_id or answer.choice not in self.scale.choices:
                raise ValueError(
                    f"{self._answers} has an answer {answer.choice!r} to item {answer.item!r}, which is not "
                    f"of this set: are these the answers of another one?"
                )
            found[answer.rater, answer.item] = answer
        return list(found.values())

    @cached_property
    def by_id(self) -> dict[str, RatingItem]:
        """Items by their names."""
        return {it.id: it for it in self.items}

    def key(self) -> Key:
        """Who said what: this is what blinding hides."""
        path = self.folder / KEY
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is not there: without the key nobody knows which system said what. Copy it from "
                "where the set was prepared."
            )
        found = _read_json(path)
        try:
            items = {
                name: Said(int(it["prompt"]), tuple(tuple(map(_text, these)) for these in it["systems"]))
                for name, it in found["items"].items()
            }
            ties = tuple((_text(a), _text(b)) for a, b in found["ties"])
            key = Key(tuple(map(_text, found["systems"])), items, ties)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: not the key of a rating set ({error})") from None
        if set(key.items) != set(self.by_id):
            raise ValueError(f"{path} is the key of another set than {self.folder / SET}")
        return key

    @property
    def _answers(self) -> Path:
        return self.folder / ANSWERS


def check_rater(rater: str) -> str:
    """A rater's name, without spaces around it."""
    if not isinstance(rater, str) or not rater.strip():
        raise ValueError(f"the rater is {rater!r:.40}, but must be a name: answers are kept by rater")
    name = rater.strip()
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the rater's name {name!r:.40} holds half a character: write it as UTF-8") from None
    if len(name) > LONGEST_NAME or printable(name) != name or "\n" in name or name[0] in "=+-@":
        raise ValueError(
            f"the rater's name {name!r:.40} is too long, has characters that cannot be shown, or begins with "
            f"one of = + - @: choose up to {LONGEST_NAME} letters"
        )
    return name


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}): the file is damaged; take it from a copy") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value
