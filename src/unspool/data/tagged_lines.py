"""A file with a sentence and its tags a line, for tagging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unspool.data.labelled_examples import Tags, choice
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Row, RowForm
from unspool.data.text_files import TextFiles
from unspool.data.tsv import check_columns, columns


@dataclass(frozen=True, kw_only=True)
class TaggedLines(TextFiles):
    """Words and as many tags a line, in two tab-separated columns; spaces stand between words, and tags."""

    words: int = 1
    """Which column holds the words, counted from 1."""
    tags: int = 2
    """Which column holds the tags, counted from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(words=self.words, tags=self.tags)

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is; the tags are those of these rows."""
        return Tags(choice(tag for _, tags in rows for tag in tags.split()))

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file."""
        found = columns(path, (self.words, self.tags), self.max_line_bytes, advance)
        for number, (words, tags) in enumerate(found, start=1):
            if len(words.split()) != len(tags.split()):
                raise ValueError(
                    f"{path}, line {number} has {len(words.split())} words but {len(tags.split())} tags: "
                    "every word needs one"
                )
            yield words, tags
