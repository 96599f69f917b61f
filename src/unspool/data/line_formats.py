"""Text files as data: lines, dialogues, JSON lines, TSV, parallel files, labelled and tagged lines."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from unspool.data.examples import END_OF_TEXT, Pairs, Row, RowFormat, Texts
from unspool.data.labelled_examples import Classes, Tags, sorted_labels
from unspool.data.reading import MAX_LINE_BYTES, OnProgress, read_lines
from unspool.data.split import HeldOut
from unspool.errors import check_surrogates

Paths = str | tuple[str, ...]
"""One file or several; gzip files are decompressed."""


def as_paths(name: str, paths: Paths | None) -> tuple[str, ...]:
    """Return the paths of a setting as a tuple."""
    if paths == ():
        raise ValueError(f"{name} is an empty list: name at least one file")
    return () if paths is None else (paths,) if isinstance(paths, str) else tuple(paths)


@dataclass(frozen=True, kw_only=True)
class TextFiles(HeldOut, ABC):
    """Training files, and optional validation files."""

    train: Paths
    """The training file, or a list of files."""
    valid: Paths | None = None
    """The validation file, or a list of files."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.files()

    @property
    def joined(self) -> bool:
        """True if all rows of a file are one text."""
        return False

    @abstractmethod
    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """Return setting → paths of the files that are read."""
        found = {name: as_paths(name, getattr(self, name)) for name in ("train", "valid")}
        return {name: paths for name, paths in found.items() if paths}

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Yield the training rows."""
        return self._all(self.files()["train"], advance)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        """Yield the rows of the validation files."""
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

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of the rows."""
        del rows
        return Texts(joined=self.joined)

    @property
    def joined(self) -> bool:
        """True if all rows of a file are one text."""
        return self.document == "file"

    @property
    def hangs_together(self) -> bool:
        """Rows of a file belong together; lines are independent."""
        return self.joined

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""
        end = "\n" if self.joined else ""
        for line in read_lines(path, self.max_line_bytes, advance):
            yield (line + end,)


TURN_SEPARATOR = "\n"
"""Separates the turns of a history; a single turn cannot contain it."""


@dataclass(frozen=True, kw_only=True)
class Dialogues(TextFiles):
    """One dialogue per line, its turns separated by a mark. Every turn is an answer to those before it.

        u₁ u₂ u₃   →   (u₁, u₂), (u₁ u₂, u₃)      with a history of 2

    The turns of a history are separated by line ends.
    """

    mark: str = "__eou__"
    """The separator of turns (also allowed after the last one)."""
    history: int = 1
    """Number of previous turns that an answer sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.history < 1:
            raise ValueError(f"history is {self.history}; an answer sees 1 turn or more")
        if not self.mark:
            raise ValueError("mark is empty: give the separator of turns")

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of the rows."""
        del rows
        return Pairs()

    @property
    def hangs_together(self) -> bool:
        """An answer is the question of the next row: random held-out rows would be seen in training."""
        return True

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""
        found = 0
        for line in read_lines(path, self.max_line_bytes, advance):
            turns = [turn.strip() for turn in line.split(self.mark)]
            for row in reply_pairs([turn for turn in turns if turn], self.history):
                found += 1
                yield row
        if not found:
            raise ValueError(f"{path} has no line with two turns: is {self.mark!r} the separator?")


def reply_pairs(turns: Sequence[str], history: int) -> Iterator[Row]:
    """Yield (history, answer) for every turn except the first."""
    for at in range(1, len(turns)):
        yield TURN_SEPARATOR.join(turns[max(0, at - history) : at]), turns[at]


@dataclass(frozen=True, kw_only=True)
class JSONL(TextFiles):
    """One JSON object per line. Name its fields: `text`, or `source` and `target`, or `turns`."""

    text: str | None = None
    """The field with the text of a language model."""
    source: str | None = None
    """The field with the source of a pair."""
    target: str | None = None
    """The field with the target of a pair."""
    turns: str | None = None
    """The field with a list of turns (strings, or objects with "content"): each answers those before it."""
    history: int = 1
    """Number of previous turns that an answer sees."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("text", "source", "target", "turns") if getattr(self, name) is not None]
        if given not in (["text"], ["source", "target"], ["turns"]):
            raise ValueError(
                f"{', '.join(given) or 'no field'} is given: give text, or source and target, or turns"
            )
        if self.history < 1:
            raise ValueError(f"history is {self.history}; an answer sees 1 turn or more")

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of the rows."""
        del rows
        return Texts() if self.text is not None else Pairs()

    @property
    def hangs_together(self) -> bool:
        """An answer is the question of the next row: random held-out rows would be seen in training."""
        return self.turns is not None

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""
        fields = [name for name in (self.text, self.source, self.target) if name is not None]
        for number, line in enumerate(read_lines(path, self.max_line_bytes, advance), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            found = json_object(line, where)
            if self.turns is not None:
                yield from reply_pairs(_turns(found, self.turns, where), self.history)
            else:
                yield tuple(_string(found, name, where) for name in fields)


def json_object(line: str, where: str) -> dict[str, Any]:
    """Parse a line as a JSON object."""
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON ({error}): write one object per line") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} is a JSON {type(found).__name__}, not an object: {line[:60]!r}")
    return found


def json_field(found: dict[str, Any], name: str, where: str) -> Any:
    """Return a field of an object."""
    if name not in found:
        raise ValueError(f"{where} has no field {name!r}; it has {', '.join(map(repr, found)) or 'none'}")
    return found[name]


def _string(found: dict[str, Any], name: str, where: str) -> str:
    value = json_field(found, name, where)
    if not isinstance(value, str):
        raise ValueError(f"{where}: the field {name!r} is {value!r:.60}, not a string")
    return check_surrogates(value, where)


def _turns(found: dict[str, Any], name: str, where: str) -> list[str]:
    value = json_field(found, name, where)
    turns = value if isinstance(value, list) else [value]
    said: list[Any] = [turn.get("content") if isinstance(turn, dict) else turn for turn in turns]
    if not isinstance(value, list) or not all(isinstance(turn, str) for turn in said):
        raise ValueError(
            f"{where}: the field {name!r} must be a list of strings, or of objects with a string "
            f'"content": {value!r:.60}'
        )
    return [check_surrogates(turn, where) for turn in said]


@dataclass(frozen=True, kw_only=True)
class TSV(TextFiles):
    """One pair per line, in two tab-separated columns, as in files of Tatoeba."""

    source: int = 1
    """Which column is the source, counted from 1."""
    target: int = 2
    """Which column is the target, counted from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(source=self.source, target=self.target)

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of the rows."""
        del rows
        return Pairs()

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""
        return read_columns(path, (self.source, self.target), self.max_line_bytes, advance)


def check_columns(**columns: int) -> None:
    """Refuse column numbers below 1."""
    for name, column in columns.items():
        if column < 1:
            raise ValueError(f"{name} is {column}; columns are counted from 1")


def read_columns(path: str, wanted: tuple[int, ...], limit: int, advance: OnProgress) -> Iterator[Row]:
    """Yield these columns, counted from 1; empty strings for blank lines."""
    for number, line in enumerate(read_lines(path, limit, advance), start=1):
        if not line.strip():
            yield ("",) * len(wanted)
            continue
        found = line.split("\t")
        if len(found) < max(wanted):
            raise ValueError(
                f"{path}, line {number} has {len(found)} tab-separated column{'s' * (len(found) > 1)}, but "
                f"column {max(wanted)} is needed: {line[:60]!r}"
            )
        yield tuple(found[column - 1] for column in wanted)


@dataclass(frozen=True, kw_only=True)
class Parallel(HeldOut):
    """Parallel files for translation: line i of one file is the source of line i of the other."""

    source: Paths
    """The file of training sources, or a list of files."""
    target: Paths
    """The file of their targets, or a list of as many files."""
    valid_source: Paths | None = None
    """The file of validation sources, or a list of files."""
    valid_target: Paths | None = None
    """The file of their targets, or a list of as many files."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A longer line is an error."""

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

    def files(self) -> Mapping[str, tuple[str, ...]]:
        """Return setting → paths of the files that are read."""
        names = ("source", "target", "valid_source", "valid_target")
        found = {name: as_paths(name, getattr(self, name)) for name in names}
        return {name: paths for name, paths in found.items() if paths}

    def train_rows(self, advance: OnProgress) -> Iterator[Row]:
        """Yield the training rows."""
        return self._all("source", "target", advance)

    def valid_rows(self, advance: OnProgress) -> Iterator[Row] | None:
        """Yield the rows of the validation files."""
        return None if self.valid_source is None else self._all("valid_source", "valid_target", advance)

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of the rows."""
        del rows
        return Pairs()

    def _all(self, source: str, target: str, advance: OnProgress) -> Iterator[Row]:
        files = self.files()
        for one, other in zip(files[source], files[target], strict=True):
            yield from self._rows(one, other, advance)

    def _rows(self, source: str, target: str, advance: OnProgress) -> Iterator[Row]:
        sides = [read_lines(path, self.max_line_bytes, advance) for path in (source, target)]
        counts = [0, 0]
        for row in zip_longest(*sides):
            counts = [count + (side is not None) for count, side in zip(counts, row, strict=True)]
            if None not in row:
                yield row
        if counts[0] != counts[1]:
            raise ValueError(
                f"{source} has {counts[0]} lines, but {target} has {counts[1]}: line i of one must be the "
                "source of line i of the other"
            )


@dataclass(frozen=True, kw_only=True)
class LabelledLines(TextFiles):
    """A label and a text per line, in tab-separated columns, for classification."""

    label: int = 1
    """Which column is the label, counted from 1."""
    text: int = 2
    """Which column is the text, counted from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(label=self.label, text=self.text)

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of the rows, with their labels."""
        return Classes(sorted_labels(label.strip() for label, text in rows if label.strip() and text.strip()))

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""
        return read_columns(path, (self.label, self.text), self.max_line_bytes, advance)


@dataclass(frozen=True, kw_only=True)
class TaggedLines(TextFiles):
    """Words and their tags per line, in two tab-separated columns, separated by spaces, for tagging."""

    words: int = 1
    """Which column holds the words, counted from 1."""
    tags: int = 2
    """Which column holds the tags, counted from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(words=self.words, tags=self.tags)

    def form(self, rows: Iterable[Row]) -> RowFormat:
        """Return the format of the rows, with their tags."""
        return Tags(sorted_labels(tag for _, tags in rows for tag in tags.split()))

    def rows(self, path: str, advance: OnProgress) -> Iterator[Row]:
        """Yield the rows of a file."""
        found = read_columns(path, (self.words, self.tags), self.max_line_bytes, advance)
        for number, (words, tags) in enumerate(found, start=1):
            if len(words.split()) != len(tags.split()):
                raise ValueError(
                    f"{path}, line {number} has {len(words.split())} words but {len(tags.split())} tags: "
                    "every word needs one"
                )
            yield words, tags
