"""Answers as CSV: a sheet to rate in a spreadsheet, all answers for other tools, and the way back in.

Columns: rater, item, choice, prompt, text (or text a, text b), and the systems where they are asked for. Only
the first three are read back. A cell that a spreadsheet would take for a formula gets an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from unspool.evaluate.rating.answer_file import Answer
from unspool.evaluate.rating.rating_set import RatingSet, check_rater
from unspool.files.atomic import new_file

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
