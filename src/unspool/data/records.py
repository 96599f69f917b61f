"""Read files of prompts, texts, outputs and pairs, in the same way for every command.

The suffix of a file determines its format:

    .jsonl, .ndjson   a JSON object with "prompt" or "messages", "text", "source", "target"
    .tsv              tab-separated columns: a source and its target
    any other         a text; or the whole file is one text (document = "file")

Commands read from a line:

    a prompt    "prompt", "messages", "source", the first column, or the line itself
    a text      "text", "prompt", or the line itself; a pair is refused
    an output   "text", "target", the second column, or the line itself
    a pair      "source" and "target", "prompt" and "text", or two columns; a plain line is refused

Blank lines are skipped, except in plain files of outputs and of their prompts, which are aligned by line.
A `Layout` names other fields and columns, such as those of the training data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unspool.errors import check_surrogates
from unspool.io import MAX_TEXT_BYTES, read_bounded

JSONL_SUFFIXES = frozenset({".jsonl", ".ndjson"})
TSV_SUFFIX = ".tsv"
PROMPT = '{"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}'
TEXT = '{"text": "…"}'
OUTPUT = '{"text": "…"}, with or without "prompt"'
PAIR = '{"source": "…", "target": "…"}'

EXTRA = "2 are expected: say which they are (--columns SOURCE TARGET), or leave the others out"

Messages = tuple[Mapping[str, str], ...]
Document = Literal["line", "file"]


@dataclass(frozen=True)
class Layout:
    """Fields and columns of a record, if they differ from the defaults."""

    columns: tuple[int, int] | None = None
    """Source and target, counted from 1. If given, every file that is not JSON lines has columns."""
    text_column: int | None = None
    """The column of a text without a source, counted from 1. If given, likewise."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """"text", "source", "target" → the JSON field that holds it."""
    document: Document = "line"
    """The unit of a text in a plain file."""


@dataclass(frozen=True)
class Record:
    """One line of a file, or a whole file."""

    where: str
    """File and line, for messages."""
    content: str
    """The raw text."""
    fields: Mapping[str, Any]
    """Fields of a JSON object, or "source" and "target" of columns; empty for a plain line."""
    is_plain: bool = False

    def prompt(self) -> str | Messages:
        if self.is_plain:
            return self._checked(self.content, "the prompt")
        given = [name for name in ("prompt", "messages") if name in self.fields]
        if len(given) == 2:
            raise self._unexpected(PROMPT)
        if given == ["messages"]:
            return self._messages()
        if not isinstance(self.fields.get("prompt", ""), str):
            raise ValueError(
                f'{self.where}: "prompt" must be a string, found {shorten(repr(self.fields["prompt"]))}'
            )
        return self._string(PROMPT, "prompt", "source")

    def text(self) -> str:
        if self.is_plain:
            return self._checked(self.content, "the text")
        if "text" not in self.fields and {"source", "target"} & set(self.fields):
            raise ValueError(
                f"{self.where}: this is a pair, but a text is expected: write {TEXT}, or plain lines"
            )
        return self._string(TEXT, "text", "prompt")

    def output(self) -> str:
        """Return an output of a system, or a reference."""
        return (
            self._checked(self.content, "the text")
            if self.is_plain
            else self._string(OUTPUT, "text", "target")
        )

    def pair(self) -> tuple[str, str]:
        if self.is_plain:
            raise ValueError(
                f"{self.where}: an encoder–decoder is measured on pairs: give {PAIR} a line (.jsonl), or "
                "source, tab and target (.tsv)"
            )
        if "source" in self.fields or "target" in self.fields:
            return self._string(PAIR, "source"), self._string(PAIR, "target")
        return self._string(PAIR, "prompt"), self._string(PAIR, "text")

    @property
    def is_prompt(self) -> bool:
        """True if the line has a prompt but not a text."""
        return "text" not in self.fields and ("prompt" in self.fields or "messages" in self.fields)

    def _string(self, expected: str, *names: str) -> str:
        """Return the first of these fields that exists."""
        for name in names:
            if name in self.fields:
                if not isinstance(self.fields[name], str):
                    break
                return self._checked(self.fields[name], f'"{name}"')
        raise self._unexpected(expected)

    def _messages(self) -> Messages:
        found = self.fields["messages"]
        if not isinstance(found, list) or not found or not all(map(_is_message, found)):
            shape = 'a list of {"role": "…", "content": "…"}'
            raise ValueError(f'{self.where}: "messages" must be {shape}, found {shorten(json.dumps(found))}')
        for message in found:
            self._checked(message["content"], '"messages"')
        return tuple(found)

    def _checked(self, text: str, name: str) -> str:
        return check_surrogates(text, f"{self.where}: {name}")

    def _unexpected(self, expected: str) -> ValueError:
        return ValueError(f"{self.where}: expected {expected}, found {self.shown}")

    @property
    def shown(self) -> str:
        return shorten(self.content)


def read_records(path: Path, layout: Layout | None = None, *, keep_blank: bool = False) -> list[Record]:
    """Read the records of a file. `keep_blank` keeps empty lines of a plain file as empty records."""
    layout = layout or Layout()
    suffix, content = path.suffix.lower(), read_utf8(path)
    if suffix == ".json":
        raise ValueError(f"{path}: one JSON document: write one object a line to a .jsonl file")
    has_columns = suffix == TSV_SUFFIX or layout.columns is not None or layout.text_column is not None
    is_plain = suffix not in JSONL_SUFFIXES and not has_columns
    if is_plain and layout.document == "file":
        return [Record(str(path), content, {}, is_plain=True)] if content.strip() else []
    lines = split_lines(content)
    if lines[-1] == "":
        del lines[-1]
    found = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if not line.strip() and not (is_plain and keep_blank):
            continue
        if suffix in JSONL_SUFFIXES:
            found.append(json_record(line, where, layout))
        elif is_plain:
            found.append(Record(where, line, {}, is_plain=True))
        else:
            found.append(_column_record(line, where, layout))
    return found


def json_record(line: str, where: str, layout: Layout | None = None) -> Record:
    try:
        value = json.loads(line, object_pairs_hook=_object)
    except RepeatedKeyError as error:
        raise ValueError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}); expected an object such as {TEXT}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected {TEXT}, {PROMPT} or {PAIR}, found {shorten(line)}")
    named = {name: value[key] for name, key in (layout or Layout()).fields.items() if key in value}
    return Record(where, line, {**value, **named})


def _column_record(line: str, where: str, layout: Layout) -> Record:
    cells = line.split("\t")
    if len(cells) == 1 and layout.columns is None:
        return Record(where, line, {}, is_plain=True)
    wanted = layout.columns or (1, 2) if layout.text_column is None else (layout.text_column,)
    if len(cells) < max(wanted) or (len(cells) > 2 and wanted == (1, 2) and layout.columns is None):
        raise ValueError(
            f"{where}: {len(cells)} tab-separated column{'s' * (len(cells) != 1)}, but "
            + (f"column {max(wanted)} is needed" if len(cells) < max(wanted) else EXTRA)
            + f": {shorten(line)}"
        )
    names = ("source", "target") if layout.text_column is None else ("text",)
    return Record(where, line, {name: cells[column - 1] for name, column in zip(names, wanted, strict=True)})


class RepeatedKeyError(ValueError):
    """A JSON object has a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKeyError(f'the key "{shorten(key)}" occurs twice in one object: remove one of them')
        found[key] = value
    return found


def _is_message(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(key), str) for key in ("role", "content"))


def shorten(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def split_lines(content: str) -> list[str]:
    """Split a text at \\n, \\r\\n and \\r."""
    # Not splitlines(), which also splits at U+2028 and others.
    return re.split(r"\r\n|\n|\r", content)


def read_utf8(path: Path) -> str:
    try:
        return read_bounded(path, MAX_TEXT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
