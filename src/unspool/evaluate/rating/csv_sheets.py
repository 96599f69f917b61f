"""CSV sheets of ratings, for raters who use a spreadsheet.

    rater, item, choice, prompt, text (or text a, text b), and on request system (or system a, system b)

Written sheets begin with a byte order mark, which tells spreadsheets that the file is UTF-8. Cells that a
spreadsheet would read as formulas get a leading apostrophe. Sheets are read with commas, semicolons or tabs.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from unspool.evaluate.rating.answers import Answer
from unspool.evaluate.rating.rating_set import RatingSet, check_rater
from unspool.io import new_file, read_bounded

FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")


def write_sheet(
    ratings: RatingSet, path: str | Path, *, rater: str | None = None, systems: bool = False
) -> int:
    """Write a CSV sheet of all answers, or of one rater's items, answered or not; return the number of rows.

    `rater` selects one rater, `systems` adds the columns that name the systems.
    """
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
    for (who, item_id), choice in given.items():
        item = ratings.by_id[item_id]
        names = [" = ".join(group) for group in key.items[item_id].systems] if key else []
        sheet.writerow([who, item_id, choice, *map(_escape_formula, (item.prompt, *item.texts, *names))])
    with new_file(Path(path)) as fresh:
        fresh.write_bytes(out.getvalue().encode("utf-8-sig"))
    return len(given)


def read_sheet(ratings: RatingSet, path: str | Path, *, rater: str | None = None) -> int:
    """Record the answers of a CSV sheet, and return how many were new; an invalid row records none.

    Only the columns rater, item and choice are read. Rows without a choice and known answers are skipped.
    `rater` is the default for the column rater.
    """
    path = Path(path)
    known = {(it.rater, it.item): it.choice for it in ratings.answers()}
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
