"""A file with one JSON object a line: a text, a source and its target, or a dialogue's turns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from unspool.characters import check_characters
from unspool.data.dialogues import replies
from unspool.data.read import read_lines
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Pairs, Row, RowForm, Texts
from unspool.data.text_files import TextFiles


@dataclass(frozen=True, kw_only=True)
class JSONL(TextFiles):
    """One object a line. Name its fields: `text`, or `source` and `target`, or `turns`."""

    text: str | None = None
    """The field with the text of a language model."""
    source: str | None = None
    """The field with the source of a pair."""
    target: str | None = None
    """The field with the target of a pair."""
    turns: str | None = None
    """The field with a list of turns (strings, or objects with "content"): each answers those before it."""
    history: int = 1
    """How many turns before it an answer sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("text", "source", "target", "turns") if getattr(self, name) is not None]
        if given not in (["text"], ["source", "target"], ["turns"]):
            raise ValueError(
                f"{', '.join(given) or 'no field'} is given: give text, or source and target, or turns"
            )
        if self.history < 1:
            raise ValueError(f"history is {self.history}; an answer sees 1 turn or more")

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is."""
        del rows
        return Texts() if self.text is not None else Pairs()

    @property
    def hangs_together(self) -> bool:
        """An answer is a question in the next row: held out at random, it would be seen in training."""
        return self.turns is not None

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""
        fields = [name for name in (self.text, self.source, self.target) if name is not None]
        for number, line in enumerate(read_lines(path, self.max_line_bytes, advance), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            found = json_object(line, where)
            if self.turns is not None:
                yield from replies(_turns(found, self.turns, where), self.history)
            else:
                yield tuple(_string(found, name, where) for name in fields)


def json_object(line: str, where: str) -> dict[str, Any]:
    """The object that a line is."""
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error}): there must be one object a line") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} is a JSON {type(found).__name__}, not an object: {line[:60]!r}")
    return found


def json_field(found: dict[str, Any], name: str, where: str) -> Any:
    """What an object has in a field."""
    if name not in found:
        raise ValueError(f"{where} has no field {name!r}; it has {', '.join(map(repr, found)) or 'none'}")
    return found[name]


def _string(found: dict[str, Any], name: str, where: str) -> str:
    value = json_field(found, name, where)
    if not isinstance(value, str):
        raise ValueError(f"{where}: the field {name!r} is {value!r:.60}, not a string")
    return check_characters(value, where)


def _turns(found: dict[str, Any], name: str, where: str) -> list[str]:
    value = json_field(found, name, where)
    turns = value if isinstance(value, list) else [value]
    said: list[Any] = [turn.get("content") if isinstance(turn, dict) else turn for turn in turns]
    if not isinstance(value, list) or not all(isinstance(turn, str) for turn in said):
        raise ValueError(
            f"{where}: the field {name!r} must be a list of strings, or of objects with a string "
            f'"content": {value!r:.60}'
        )
    return [check_characters(turn, where) for turn in said]
