"""A blinded set of texts to rate, and the answers to it: a folder of three files.

    set.json        what raters see: prompts and texts, no system's name
    key.json        which systems said which text; only the report opens it
    answers.jsonl   what raters said, one line each, only ever appended to

The first two are written once, whole or not at all.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from unspool.decode.arguments import as_whole, one_of, shown
from unspool.errors import check_surrogates, replace_control_characters
from unspool.evaluate.rating import answers as answers_module
from unspool.evaluate.rating.answers import SCALES, Answer, Scale
from unspool.io import new_file

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
        answers_module.append(self._answers, [answer])
        return answer

    def record_all(self, answers: list[Answer]) -> None:
        """Write many answers that `checked` has made, all at once."""
        if answers:
            answers_module.append(self._answers, answers)

    def checked(self, rater: str, item: str, choice: str) -> Answer:
        """An answer that could be recorded; a ValueError where it could not."""
        if not isinstance(item, str) or item not in self.by_id:
            raise ValueError(f"item {item!r:.40} is none of the {len(self.items)} of {self.folder}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Answer(check_rater(rater), item, self.scale.check(choice), now)

    def answers(self) -> list[Answer]:
        """What counts: of each rater and item the last answer, in the order of the first ones."""
        found: dict[tuple[str, str], Answer] = {}
        for answer in answers_module.read(self._answers):
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
    if (
        len(name) > LONGEST_NAME
        or replace_control_characters(name) != name
        or "\n" in name
        or name[0] in "=+-@"
    ):
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


def prepare(
    folder: str | Path,
    systems: Mapping[str, Sequence[str]],
    prompts: Sequence[str],
    *,
    scale: str = "score",
    seed: int = 0,
    most: int | None = None,
) -> RatingSet:
    """Write a set into a folder, which is made if it must be; one that holds a set already is refused.

    `systems` are outputs by the system's name, one for each prompt. With `most`, so many of the prompts are
    drawn. A `scale` is "score" (0, 1, 2 for one text) or "preference" (which of two).

    Make a blinded set of several systems' outputs to the same prompts.

    Blinded: items have names drawn from the seed, their order is shuffled, the sides of a pair are tossed for
    each, and no system is named in what raters see. The same outputs and the same seed give the same set. A
    text that several systems said to a prompt is shown once; in pairs, two equal texts are a tie, and not
    asked.
    """
    folder = Path(folder)
    one_of("scale", scale, SCALES)
    seed = as_whole("seed", seed, at_least=0, advice="The same seed gives the same set.")
    outputs = _checked(systems, prompts, scale)
    dice = Random(f"rating {seed}")
    places = list(range(len(prompts)))
    if most is not None:
        most = as_whole("most", most, at_least=1, advice="It is how many prompts are drawn.")
        places = sorted(dice.sample(places, min(most, len(places))))
    items, key, ties = [], {}, list[tuple[str, str]]()
    for place in places:
        said: dict[str, list[str]] = {}
        for name, texts in outputs.items():
            said.setdefault(texts[place], []).append(name)
        for shown_texts in _shown(said, scale, dice):
            name = f"{dice.getrandbits(48):012x}"
            items.append({"id": name, "prompt": prompts[place], "texts": shown_texts})
            key[name] = {"prompt": place, "systems": [said[text] for text in shown_texts]}
        if SCALES[scale].texts == 2:
            ties += [pair for names in said.values() for pair in combinations(names, 2)]
    if not items:
        raise ValueError("the systems said the same to every prompt: there is nothing to choose between")
    dice.shuffle(items)
    _write(folder, {"kind": KIND, "scale": scale, "seed": seed, "items": items}, key, outputs, ties)
    return RatingSet.load(folder)


def _shown(said: Mapping[str, list[str]], scale: str, dice: Random) -> list[list[str]]:
    """The texts of each item of one prompt; of a pair, either may stand first."""
    if SCALES[scale].texts == 1:
        return [[text] for text in said]
    return [dice.sample(pair, 2) for pair in combinations(said, 2)]


def _checked(
    systems: Mapping[str, Sequence[str]], prompts: Sequence[str], scale: str
) -> dict[str, Sequence[str]]:
    if not isinstance(systems, Mapping) or not all(isinstance(it, str) and it.strip() for it in systems):
        raise TypeError(f"systems is {shown(systems)}, but must be a dict from a name to its outputs.")
    least = SCALES[scale].texts
    if len(systems) < least:
        raise ValueError(f"{len(systems)} systems were given, and {scale} needs {least} or more")
    for name, texts in {"prompts": prompts, **systems}.items():
        if isinstance(texts, str | bytes) or not isinstance(texts, Sequence):
            raise TypeError(f"{name} is {shown(texts)}, but must be a list of texts.")
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"{name} {place} is {shown(text)}, but must be a string.")
            check_surrogates(text, f"{name} {place}")
        if len(texts) != len(prompts):
            raise ValueError(
                f"system {name!r} has {len(texts)} outputs for {len(prompts)} prompts: give one for each"
            )
    if not prompts:
        raise ValueError("there is no prompt, and so nothing to rate: give one or more, with their outputs")
    for name, texts in systems.items():
        if not any(text.strip() for text in texts):
            raise ValueError(f"all outputs of system {name!r} are empty: there is nothing to rate")
    return dict(systems)


def _write(
    folder: Path, blinded: dict[str, Any], key: dict[str, Any], systems: Mapping[str, Any], ties: list[Any]
) -> None:
    for name in (SET, ANSWERS):
        if (folder / name).exists():
            raise FileExistsError(
                f"{folder} holds a rating set already ({name}): choose another folder, for answers belong to "
                "the set that they were given to"
            )
    secret = {"kind": f"{KIND}: key", "systems": list(systems), "items": key, "ties": ties}
    for name, content in ((KEY, secret), (SET, blinded)):  # the set last: it says that all is there
        with new_file(folder / name) as fresh:
            text = json.dumps(content, ensure_ascii=False, indent=1)
            fresh.write_text(text + "\n", encoding="utf-8")


# Answers as CSV: a sheet to rate in a spreadsheet, all answers for other tools, and the way back in.
#
# Columns: rater, item, choice, prompt, text (or text a, text b), and the systems where they are asked for.
# Only the first three are read back. A cell that a spreadsheet would take for a formula gets an apostrophe in
# front.


FORMULA = ("=", "+", "-", "@", "\t", "\r")
LARGEST = 1 << 26
"""Bytes of a sheet that is read."""


def write_sheet(
    ratings: RatingSet, path: str | Path, *, rater: str | None = None, systems: bool = False
) -> int:
    """Write all answers, or the sheet of one rater: every item, answered or not. How many rows there are."""
    texts = ["text"] if ratings.scale.texts == 1 else ["text a", "text b"]
    sides = ["system"] if ratings.scale.texts == 1 else ["system a", "system b"]
    key = ratings.key() if systems else None
    given = {(it.rater, it.item): it.choice for it in ratings.answers()}
    if rater is not None:
        name = check_rater(rater)
        given = {(name, it.id): given.get((name, it.id), "") for it in ratings.order(name)}
    out = io.StringIO(newline="")
    sheet = csv.writer(out, lineterminator="\r\n")
    sheet.writerow(["rater", "item", "choice", "prompt", *texts, *(sides if key else [])])
    for (who, name), choice in given.items():
        item = ratings.by_id[name]
        said = [" = ".join(these) for these in key.items[name].systems] if key else []
        sheet.writerow([who, name, choice, *map(_plain, (item.prompt, *item.texts, *said))])
    with new_file(Path(path)) as fresh:
        # The mark tells spreadsheets that it is UTF-8.
        fresh.write_bytes(b"\xef\xbb\xbf" + out.getvalue().encode())
    return len(given)


def read_sheet(ratings: RatingSet, path: str | Path, *, rater: str | None = None) -> int:
    """Record the answers of a sheet, all or, where one is wrong, none; how many were new.

    Rows without a choice are passed over; so are answers that are there already. `rater` says whose they are
    where the column is missing or empty.
    """
    path = Path(path)
    known = {(it.rater, it.item): it.choice for it in ratings.answers()}
    fresh: dict[tuple[str, str], Answer] = {}
    for number, row in _rows(path):
        choice = row.get("choice", "").strip()
        if not choice:
            continue
        try:
            who = row.get("rater", "").strip() or rater
            if who is None:
                raise ValueError("no rater is named: fill the column in, or say whose answers these are")
            answer = ratings.checked(who, row.get("item", "").strip(), choice)
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}. Nothing was recorded.") from None
        fresh[answer.rater, answer.item] = answer
    new = [answer for place, answer in fresh.items() if known.get(place) != answer.choice]
    ratings.record_all(new)
    return len(new)


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    content = path.read_bytes()
    if len(content) > LARGEST:
        raise ValueError(f"{path} has {len(content):,} bytes, and sheets of up to {LARGEST:,} are read")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}): save the sheet as CSV UTF-8") from None
    header = text.partition("\n")[0]
    # Spreadsheets of some countries separate by semicolons.
    mark = max(",;\t", key=header.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}: not CSV ({error})") from None
    if not rows or not {"item", "choice"} <= {name.strip().lower() for name in rows[0]}:
        raise ValueError(f'{path}: the first row must name the columns "rater", "item" and "choice"')
    names = [name.strip().lower() for name in rows[0]]
    return [
        (number, dict(zip(names, row, strict=False)))
        for number, row in enumerate(rows[1:], start=2)
        if any(cell.strip() for cell in row)
    ]


def _plain(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text
