"""A blinded rating set: a folder that raters may see, and a key beside it.

    FOLDER/set.json        the items that raters see: prompts and texts, without names of systems
    FOLDER/answers.jsonl   the answers, one per line, only appended
    FOLDER-key.json        the systems of each text; only the report reads it

The set and the key are written once, atomically. Raters who use a spreadsheet get CSV sheets of a set.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations
from pathlib import Path
from random import Random

from unspool.arguments import as_int, one_of, shown
from unspool.config import build, convert
from unspool.errors import check_surrogates, replace_control_characters
from unspool.evaluate.diversity import check_texts
from unspool.evaluate.rating import answers as answers_module
from unspool.evaluate.rating.answers import SCALES, Answer, Scale
from unspool.io import new_file, read_bounded, read_json_object

KIND = "unspool rating set 1"
SET, ANSWERS = "set.json", "answers.jsonl"
MAX_NAME_LENGTH = 80


@dataclass(frozen=True)
class RatingItem:
    """One question: a prompt, and the texts to rate."""

    id: str
    prompt: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class TextOrigins:
    """The systems that generated the texts of an item."""

    prompt: int
    systems: tuple[tuple[str, ...], ...]
    """For each text of the item, the systems that generated it."""


@dataclass(frozen=True)
class Key:
    """The systems behind the texts, which blinding hides."""

    systems: tuple[str, ...]
    items: Mapping[str, TextOrigins]
    ties: tuple[tuple[str, ...], ...]
    """Pairs of systems with equal texts for a prompt: ties that need no rater."""


@dataclass(frozen=True)
class RatingSet:
    """A rating set in a folder; several processes can record answers at once."""

    folder: Path
    scale: Scale
    seed: int
    items: tuple[RatingItem, ...]

    @classmethod
    def load(cls, folder: str | Path) -> RatingSet:
        """Load a set that `prepare` wrote."""
        folder = Path(folder)
        path = folder / SET
        if not path.is_file():
            raise FileNotFoundError(
                f"{folder} does not contain {SET}: prepare a set first (unspool rate prepare)"
            )
        try:
            data = read_json_object(path)
            if data["kind"] != KIND:
                raise ValueError(f"its kind is {data['kind']!r}")
            items = convert(data["items"], tuple[RatingItem, ...], "items")
            scale = SCALES[data["scale"]]
            has_wrong_texts = any(len(item.texts) != scale.texts for item in items)
            if has_wrong_texts or len({item.id for item in items}) < len(items):
                raise ValueError("its items do not fit its scale")
            return cls(folder, scale, int(data["seed"]), items)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: not a rating set ({error})") from None

    def next(self, rater: str) -> RatingItem | None:
        """Return the next unanswered item in this rater's order; None if all are answered."""
        done = {answer.item for answer in self.answers() if answer.rater == check_rater(rater)}
        return next((item for item in self.order(rater) if item.id not in done), None)

    def order(self, rater: str) -> list[RatingItem]:
        """Return all items in a random order that is fixed for each rater."""
        items = list(self.items)
        Random(f"{self.seed} {check_rater(rater)}").shuffle(items)
        return items

    def record(self, rater: str, item: str, choice: str) -> Answer:
        """Write an answer to the disk; it replaces an earlier answer of this rater to this item."""
        answer = self.make_answer(rater, item, choice)
        self.append([answer])
        return answer

    def append(self, answers: Sequence[Answer]) -> None:
        """Write checked answers to the disk."""
        answers_module.append(self.folder / ANSWERS, answers)

    def make_answer(self, rater: str, item: str, choice: str) -> Answer:
        """Check an answer and return it with the current time."""
        if not isinstance(item, str) or item not in self.by_id:
            raise ValueError(f"item {item!r:.40} is not among the {len(self.items)} items of {self.folder}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Answer(check_rater(rater), item, self.scale.check(choice), now)

    def answers(self) -> list[Answer]:
        """Return the last answer of each rater to each item, in the order of the first answers."""
        data: dict[tuple[str, str], Answer] = {}
        path = self.folder / ANSWERS
        for answer in answers_module.read(path):
            if answer.item not in self.by_id or answer.choice not in self.scale.choices:
                about = f"{answer.choice!r:.40} to item {answer.item!r:.40}"
                warnings.warn(f"{path}: the answer {about} is not of this set, skipped", stacklevel=2)
                continue
            data[answer.rater, answer.item] = answer
        return list(data.values())

    @cached_property
    def by_id(self) -> dict[str, RatingItem]:
        """Item id → item."""
        return {item.id: item for item in self.items}

    def key(self) -> Key:
        """Read the key, which names the systems."""
        path = key_path(self.folder)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: copy it from the folder in which the set was prepared"
            )
        try:
            data = read_json_object(path)
            items = {name: convert(origins, TextOrigins, name) for name, origins in data["items"].items()}
            key = build(Key, {"systems": data["systems"], "items": items, "ties": data["ties"]}, "")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path}: not the key of a rating set ({error})") from None
        if set(key.items) != set(self.by_id):
            raise ValueError(f"{path} does not belong to {self.folder / SET}")
        return key


def key_path(folder: Path) -> Path:
    """The file with the systems of a set: beside its folder, which raters may see."""
    folder = folder.absolute()
    return folder.with_name(f"{folder.name}-key.json")


def check_rater(rater: str) -> str:
    """Check the name of a rater, and return it without surrounding spaces."""
    if not isinstance(rater, str) or not rater.strip():
        raise ValueError(f"the rater is {rater!r:.40}, but must be a name")
    name = rater.strip()
    check_surrogates(name, "the rater's name")
    is_printable = replace_control_characters(name) == name and "\n" not in name
    if len(name) > MAX_NAME_LENGTH or not is_printable or name[0] in "=+-@":
        raise ValueError(
            f"invalid rater name {name!r:.40}: use up to {MAX_NAME_LENGTH} printable characters and "
            "do not start with = + - @"
        )
    return name


def prepare(
    folder: str | Path,
    systems: Mapping[str, Sequence[str]],
    prompts: Sequence[str],
    *,
    scale: str = "score",
    seed: int = 0,
    max_prompts: int | None = None,
) -> RatingSet:
    """Write a blinded set of several systems' outputs for the same prompts into a new folder.

    `systems` maps names to outputs, one per prompt. If there are more than `max_prompts` prompts, that many
    are drawn. `scale` is "score" (0, 1, 2 for one text) or "preference" (which of two).

    Item ids, the order of items and the sides of pairs are random, but the same for the same outputs and
    seed. Equal texts of several systems are shown once; in pairs they are a tie that needs no rater.
    """
    folder = Path(folder)
    one_of("scale", scale, SCALES)
    seed = as_int("seed", seed, at_least=0, advice="The same seed gives the same set.")
    outputs = _check_outputs(systems, prompts, scale)
    rng = Random(f"rating {seed}")
    chosen = list(range(len(prompts)))
    if max_prompts is not None:
        max_prompts = as_int("max_prompts", max_prompts, at_least=1, advice="It is the number of prompts.")
        chosen = sorted(rng.sample(chosen, min(max_prompts, len(chosen))))
    items, key, ties = [], {}, list[tuple[str, str]]()
    for index in chosen:
        systems_by_text: dict[str, list[str]] = {}
        for name, texts in outputs.items():
            systems_by_text.setdefault(texts[index], []).append(name)
        shown_items: list[list[str]] = [[text] for text in systems_by_text]
        if SCALES[scale].texts == 2:
            shown_items = [rng.sample(pair, 2) for pair in combinations(systems_by_text, 2)]
            ties += [pair for names in systems_by_text.values() for pair in combinations(names, 2)]
        for shown_texts in shown_items:
            name = f"{rng.getrandbits(48):012x}"
            items.append({"id": name, "prompt": prompts[index], "texts": shown_texts})
            key[name] = {"prompt": index, "systems": [systems_by_text[text] for text in shown_texts]}
    if not items:
        raise ValueError("the outputs of the systems are equal for every prompt: nothing to compare")
    rng.shuffle(items)
    for name in (SET, ANSWERS):
        if (folder / name).exists():
            raise FileExistsError(f"{folder} already contains a rating set ({name}): choose another folder")
    secret = {"kind": f"{KIND}: key", "systems": list(outputs), "items": key, "ties": ties}
    blinded = {"kind": KIND, "scale": scale, "seed": seed, "items": items}
    # The set last: it marks the folder as complete.
    for path, content in ((key_path(folder), secret), (folder / SET, blinded)):
        with new_file(path) as fresh:
            fresh.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return RatingSet.load(folder)


def _check_outputs(
    systems: Mapping[str, Sequence[str]], prompts: Sequence[str], scale: str
) -> dict[str, Sequence[str]]:
    if not isinstance(systems, Mapping) or not all(
        isinstance(name, str) and name.strip() for name in systems
    ):
        raise TypeError(f"systems is {shown(systems)}, but must be a dict from names to outputs")
    min_systems = SCALES[scale].texts
    if len(systems) < min_systems:
        raise ValueError(f"the scale {scale!r} needs at least {min_systems} systems, found {len(systems)}")
    for name, texts in {"prompts": prompts, **systems}.items():
        check_texts(texts, name, strings=True)
        for index, text in enumerate(texts):
            check_surrogates(text, f"{name} {index}")
        if len(texts) != len(prompts):
            raise ValueError(
                f"system {name!r} has {len(texts)} outputs for {len(prompts)} prompts: give one for each"
            )
        if name in systems and not any(text.strip() for text in texts):
            raise ValueError(f"all outputs of system {name!r} are empty")
    return dict(systems)


FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")


def write_sheet(
    ratings: RatingSet, path: str | Path, *, rater: str | None = None, systems: bool = False
) -> int:
    """Write a CSV sheet of all answers, or of one rater's items, answered or not; return the number of rows.

        rater, item, choice, prompt, text (or text a, text b), with `systems` system (or system a, system b)

    The sheet begins with a byte order mark, which tells spreadsheets that it is UTF-8. Cells that a
    spreadsheet would read as formulas get a leading apostrophe.
    """
    texts = ["text"] if ratings.scale.texts == 1 else ["text a", "text b"]
    sides = ["system"] if ratings.scale.texts == 1 else ["system a", "system b"]
    key = ratings.key() if systems else None
    given = {(answer.rater, answer.item): answer.choice for answer in ratings.answers()}
    if rater is not None:
        name = check_rater(rater)
        given = {(name, item.id): given.get((name, item.id), "") for item in ratings.order(name)}
    out = io.StringIO(newline="")
    sheet = csv.writer(out, lineterminator="\r\n")
    sheet.writerow(["rater", "item", "choice", "prompt", *texts, *(sides if key else [])])
    for (who, item_id), choice in given.items():
        item = ratings.by_id[item_id]
        names = [" = ".join(group) for group in key.items[item_id].systems] if key else []
        sheet.writerow([who, item_id, choice, *map(_escape_formula, (item.prompt, *item.texts, *names))])
    with new_file(Path(path)) as fresh:
        fresh.write_bytes(out.getvalue().encode("utf-8-sig"))
    return len(given)


def read_sheet(ratings: RatingSet, path: str | Path, *, rater: str | None = None) -> int:
    """Record the answers of a CSV sheet, and return how many were new; an invalid row records none.

    Only the columns rater, item and choice are read, separated by commas, semicolons or tabs. Rows without a
    choice and known answers are skipped. `rater` is the default for the column rater.
    """
    path = Path(path)
    known = {(answer.rater, answer.item): answer.choice for answer in ratings.answers()}
    fresh: dict[tuple[str, str], Answer] = {}
    for number, row in _rows(path):
        choice = row.get("choice", "").strip()
        if not choice:
            continue
        try:
            name = row.get("rater", "").strip() or rater
            if name is None:
                raise ValueError("the column rater is empty: fill it in, or name the rater")
            answer = ratings.make_answer(name, row.get("item", "").strip(), choice)
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}. Nothing was recorded.") from None
        fresh[answer.rater, answer.item] = answer
    new = [answer for index, answer in fresh.items() if known.get(index) != answer.choice]
    if new:
        ratings.append(new)
    return len(new)


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    try:
        text = read_bounded(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error}): save the sheet as CSV UTF-8") from None
    header = text.partition("\n")[0]
    # In some locales spreadsheets separate columns by semicolons.
    delimiter = max(",;\t", key=header.count)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
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


def _escape_formula(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA_PREFIXES) else text
