"""Text files as data: lines, dialogues, JSON lines, TSV, parallel files, labelled and tagged lines."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Literal

from unspool.arguments import integer
from unspool.data.examples import Classes, Pairs, Tags, Texts, sorted_labels
from unspool.data.rows import END_OF_TEXT, MAX_LINE_BYTES, HeldOut, OnProgress, Row, RowFormat, read_lines
from unspool.errors import check_surrogates

Paths = str | tuple[str, ...]
"""One file or several; gzip files are decompressed."""


@dataclass(frozen=True, kw_only=True)
class FileData(HeldOut):
    """Data in files that some of its settings name."""

    max_line_bytes: int = integer(MAX_LINE_BYTES, at_least=1)
    """A longer line is an error."""

    file_settings: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.file_settings:
            if getattr(self, name) == ():
                raise ValueError(f"{name} is an empty list: name at least one file")

    def files(self) -> Mapping[str, tuple[str, ...]]:
        given = {name: getattr(self, name) for name in self.file_settings}
        return {
            name: (paths,) if isinstance(paths, str) else paths
            for name, paths in given.items()
            if paths is not None
        }

    def lines(self, path: str, advance: OnProgress) -> Iterator[str]:
        return read_lines(path, self.max_line_bytes, advance)


@dataclass(frozen=True, kw_only=True)
class TextFiles(FileData):
    """Training files, and optional validation files."""

    train: Paths
    """The training file, or a list of files."""
    valid: Paths | None = None
    """The validation file, or a list of files."""

    file_settings = ("train", "valid")

    @property
    def joined(self) -> bool:
        """True if all rows of a file are one text."""
        return False

    @abstractmethod
    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        return self._all(self.files()["train"], advance)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        return None if self.valid is None else self._all(self.files()["valid"], advance)

    def _all(self, paths: tuple[str, ...], advance: OnProgress) -> Iterator[Row]:
        for at, path in enumerate(paths):
            if at and self.joined:
                yield END_OF_TEXT
            yield from self.rows(path, advance)


@dataclass(frozen=True, kw_only=True)
class Lines(TextFiles):
    """One text per line, or the whole file as one text (for packed batches)."""

    document: Literal["line", "file"] = "line"
    """The unit of a text. In a "file", line ends are tokens, and its end is held out."""

    @property
    def joined(self) -> bool:
        return self.document == "file"

    @property
    def holds_out_last(self) -> bool:
        return self.joined

    def form(self, rows: Iterable[Row]) -> RowFormat:  # noqa: ARG002
        return Texts(joined=self.joined)

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        end = "\n" if self.joined else ""
        for line in self.lines(path, advance):
            yield (line + end,)


@dataclass(frozen=True, kw_only=True)
class MarkedLines(TextFiles):
    """One dialogue per line, its turns separated by a mark."""

    mark: str = "__eou__"
    """The separator of turns (also allowed after the last one)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mark:
            raise ValueError("mark is empty: give the separator of turns")

    def dialogues(self, path: str, advance: OnProgress) -> Iterator[list[str]]:
        """Yield the turns of each dialogue of two or more."""
        found = False
        for line in self.lines(path, advance):
            turns = [turn.strip() for turn in line.split(self.mark) if turn.strip()]
            if len(turns) > 1:
                found = True
                yield turns
        if not found:
            raise ValueError(f"{path} has no line with two turns: is {self.mark!r} the separator?")


TURN_SEPARATOR = "\n"
"""Separates the turns of a history; a single turn cannot contain it."""


def reply_pairs(turns: Sequence[str], history: int) -> Iterator[Row]:
    """Yield (history, answer) for every turn except the first."""
    for at in range(1, len(turns)):
        yield TURN_SEPARATOR.join(turns[max(0, at - history) : at]), turns[at]


@dataclass(frozen=True, kw_only=True)
class Dialogues(MarkedLines):
    """One dialogue per line, its turns separated by a mark. Every turn is an answer to those before it.

        u₁ u₂ u₃   →   (u₁, u₂), (u₁ u₂, u₃)      with a history of 2

    The turns of a history are separated by line ends.
    """

    history: int = integer(1, at_least=1)
    """Number of previous turns that an answer sees."""

    row_format = Pairs()
    # An answer is the question of the next row: training would see random held-out rows.
    holds_out_last = True

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        for turns in self.dialogues(path, advance):
            yield from reply_pairs(turns, self.history)


@dataclass(frozen=True, kw_only=True)
class JSONObjects(TextFiles):
    """One JSON object per line."""

    def objects(self, path: str, advance: OnProgress) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each object and, for messages, its file and line."""
        for number, line in enumerate(self.lines(path, advance), start=1):
            if line.strip():
                where = f"{path}, line {number}"
                yield where, _parse_object(line, where)


def _parse_object(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error}): write one object per line") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} is a JSON {type(found).__name__}, not an object: {line[:60]!r}")
    return found


def json_field(found: dict[str, Any], name: str, where: str) -> Any:
    if name not in found:
        raise ValueError(f"{where} has no field {name!r}; it has {', '.join(map(repr, found)) or 'none'}")
    return found[name]


@dataclass(frozen=True, kw_only=True)
class JSONL(JSONObjects):
    """One JSON object per line. Name its fields: `text`, or `source` and `target`, or `turns`."""

    text: str | None = None
    """The field with the text of a language model."""
    source: str | None = None
    """The field with the source of a pair."""
    target: str | None = None
    """The field with the target of a pair."""
    turns: str | None = None
    """The field with a list of turns (strings, or objects with "content"): each answers those before it."""
    history: int = integer(1, at_least=1)
    """Number of previous turns that an answer sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("text", "source", "target", "turns") if getattr(self, name) is not None]
        if given not in (["text"], ["source", "target"], ["turns"]):
            raise ValueError(
                f"{', '.join(given) or 'no field'} is given: give text, or source and target, or turns"
            )

    @property
    def holds_out_last(self) -> bool:
        return self.turns is not None

    def form(self, rows: Iterable[Row]) -> RowFormat:  # noqa: ARG002
        return Texts() if self.text is not None else Pairs()

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        fields = [name for name in (self.text, self.source, self.target) if name is not None]
        for where, found in self.objects(path, advance):
            if self.turns is not None:
                yield from reply_pairs(_turns(found, self.turns, where), self.history)
            else:
                yield tuple(_string(found, name, where) for name in fields)


def _string(found: dict[str, Any], name: str, where: str) -> str:
    value = json_field(found, name, where)
    if not isinstance(value, str):
        raise ValueError(f"{where}: the field {name!r} is {value!r:.60}, not a string")
    return check_surrogates(value, where)


def _turns(found: dict[str, Any], name: str, where: str) -> list[str]:
    value = json_field(found, name, where)
    turns: list[Any] = value if isinstance(value, list) else [None]
    turns = [turn.get("content") if isinstance(turn, dict) else turn for turn in turns]
    if not all(isinstance(turn, str) for turn in turns):
        raise ValueError(
            f"{where}: the field {name!r} must be a list of strings, or of objects with a string "
            f'"content": {value!r:.60}'
        )
    return [check_surrogates(turn, where) for turn in turns]


@dataclass(frozen=True, kw_only=True)
class ColumnFiles(TextFiles):
    """Tab-separated columns, two of which are read; two settings name them, counted from 1."""

    column_settings: ClassVar[tuple[str, str]]

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield both columns of each line; empty strings for blank lines."""
        first, second = (getattr(self, name) for name in self.column_settings)
        for number, line in enumerate(self.lines(path, advance), start=1):
            if not line.strip():
                yield "", ""
                continue
            found = line.split("\t")
            if len(found) < max(first, second):
                raise ValueError(
                    f"{path}, line {number} has {len(found)} tab-separated column{'s' * (len(found) > 1)}, "
                    f"but column {max(first, second)} is needed: {line[:60]!r}"
                )
            yield found[first - 1], found[second - 1]


@dataclass(frozen=True, kw_only=True)
class TSV(ColumnFiles):
    """One pair per line, in two tab-separated columns, as in files of Tatoeba."""

    source: int = integer(1, at_least=1)
    """Which column is the source, counted from 1."""
    target: int = integer(2, at_least=1)
    """Which column is the target, counted from 1."""

    row_format = Pairs()
    column_settings = ("source", "target")


@dataclass(frozen=True, kw_only=True)
class LabelledLines(ColumnFiles):
    """A label and a text per line, in tab-separated columns, for classification."""

    label: int = integer(1, at_least=1)
    """Which column is the label, counted from 1."""
    text: int = integer(2, at_least=1)
    """Which column is the text, counted from 1."""

    column_settings = ("label", "text")

    def form(self, rows: Iterable[Row]) -> RowFormat:
        return Classes(sorted_labels(label.strip() for label, text in rows if label.strip() and text.strip()))


@dataclass(frozen=True, kw_only=True)
class TaggedLines(ColumnFiles):
    """Words and their tags per line, in two tab-separated columns, separated by spaces, for tagging."""

    words: int = integer(1, at_least=1)
    """Which column holds the words, counted from 1."""
    tags: int = integer(2, at_least=1)
    """Which column holds the tags, counted from 1."""

    column_settings = ("words", "tags")

    def form(self, rows: Iterable[Row]) -> RowFormat:
        return Tags(sorted_labels(tag for _, tags in rows for tag in tags.split()))

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield words and tags, which must be as many."""
        for number, (words, tags) in enumerate(super().rows(path, advance), start=1):
            if len(words.split()) != len(tags.split()):
                raise ValueError(
                    f"{path}, line {number} has {len(words.split())} words but {len(tags.split())} tags: "
                    "every word needs one"
                )
            yield words, tags


@dataclass(frozen=True, kw_only=True)
class Parallel(FileData):
    """Parallel files for translation: line i of one file is the source of line i of the other."""

    source: Paths
    """The file of training sources, or a list of files."""
    target: Paths
    """The file of their targets, or a list of as many files."""
    valid_source: Paths | None = None
    """The file of validation sources, or a list of files."""
    valid_target: Paths | None = None
    """The file of their targets, or a list of as many files."""

    row_format = Pairs()
    file_settings = ("source", "target", "valid_source", "valid_target")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.valid_source is None) != (self.valid_target is None):
            raise ValueError("only one of valid_source and valid_target is given: give both, or neither")
        files = self.files()
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if len(files.get(one, ())) != len(files.get(other, ())):
                raise ValueError(
                    f"{one} has {len(files[one])} files, but {other} has {len(files[other])}: each file of "
                    "sources needs one of targets"
                )

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        return self._rows("source", "target", advance)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        return None if self.valid_source is None else self._rows("valid_source", "valid_target", advance)

    def _rows(self, sources: str, targets: str, advance: OnProgress) -> Iterator[Row]:
        files = self.files()
        for source, target in zip(files[sources], files[targets], strict=True):
            counts = [0, 0]
            for row in zip_longest(self.lines(source, advance), self.lines(target, advance)):
                counts = [count + (side is not None) for count, side in zip(counts, row, strict=True)]
                if None not in row:
                    yield row
            if counts[0] != counts[1]:
                raise ValueError(
                    f"{source} has {counts[0]} lines, but {target} has {counts[1]}: line i of one must be "
                    "the source of line i of the other"
                )
