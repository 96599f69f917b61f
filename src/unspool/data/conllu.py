"""CoNLL-U reader: sentences of a treebank, each word with its position in the text.

    # text = I prefer the morning flight.
    5   flight   …   NOUN   …   2   obj   …   SpaceAfter=No

Nivre et al. 2020, §3 (papers.bib: nivre2020universal): a word has a head, another word or 0, and a label. The
words must match the sentence's text; otherwise the error names file and line. Words of a contraction ("don't"
is 4-5) share its position, each with its part if the parts add up to it. Empty nodes (8.1) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TreeWord:
    """A word and its head."""

    form: str
    begin: int
    end: int
    """Character positions in the text."""
    head: int | None
    """Index of the head, counted from 0; None for the root."""
    label: str


@dataclass(frozen=True)
class TreeSentence:
    """A sentence with its words."""

    text: str
    words: tuple[TreeWord, ...]


def read_treebank(path: str | Path) -> list[TreeSentence]:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"treebank {str(path)!r} does not exist: give the path of a CoNLL-U file")
    found, block, first = list[TreeSentence](), list[str](), 1
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip():
            first = first if block else number
            block.append(line)
        elif block:
            found.append(_sentence(block, path, first))
            block = []
    if not found:
        raise ValueError(f"{path} has no sentence: give a file in the CoNLL-U format")
    return found


def _sentence(block: list[str], path: Path, first: int) -> TreeSentence:
    text = next((line.partition("=")[2].strip() for line in block if line.startswith("# text =")), None)
    if text is None:
        raise ValueError(f'{path}, line {first}: the sentence has no "# text = …"')
    rows = [(first + at, line.split("\t")) for at, line in enumerate(block) if not line.startswith("#")]
    for line, row in rows:
        if len(row) != 10:
            raise ValueError(
                f"{path}, line {line}: {len(row)} columns, but a word of CoNLL-U has 10, by tabs"
            )
    words, places = list[TreeWord](), dict(_places(rows, text, path))
    plain = [(line, row) for line, row in rows if row[0].isdigit()]
    for at, (line, row) in enumerate(plain):
        if row[0] != str(at + 1) or not row[6].isdigit() or int(row[6]) > len(plain) or row[6] == row[0]:
            raise ValueError(
                f"{path}, line {line}: word {row[0]} depends on {row[6]}, but words are 1 to {len(plain)}, "
                "in order, none depends on itself, and 0 is the root"
            )
        head = int(row[6]) - 1
        words.append(TreeWord(row[1], *places[row[0]], None if head < 0 else head, row[7]))
    return TreeSentence(text, tuple(words))


def _places(
    rows: list[tuple[int, list[str]]], text: str, path: Path
) -> Iterator[tuple[str, tuple[int, int]]]:
    place, together = 0, 0
    for at, (line, row) in enumerate(rows):
        if "." in row[0] or (row[0].isdigit() and int(row[0]) <= together):
            continue
        place += len(text[place:]) - len(text[place:].lstrip())
        end = place + len(row[1])
        if text[place:end] != row[1]:
            raise ValueError(
                f"{path}, line {line}: the word {row[1]!r} is not in the sentence's text at "
                f"{text[place : place + 20]!r}: words and text must match"
            )
        if "-" in row[0]:
            begin, last = map(int, row[0].split("-"))
            together = last
            yield from _parts(rows[at + 1 : at + 2 + last - begin], row[1], place)
        else:
            yield row[0], (place, end)
        place = end
    if text[place:].strip():
        line = rows[-1][0] if rows else 0
        raise ValueError(
            f"{path}, line {line}: the words end before the text at {text[place:][:20]!r}: words and "
            "text must match"
        )


def _parts(
    rows: list[tuple[int, list[str]]], written: str, place: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the positions of the words of a contraction: parts of it if they add up, else all of it."""
    adds_up = "".join(row[1] for _, row in rows) == written
    for _, row in rows:
        size = len(row[1]) if adds_up else len(written)
        yield row[0], (place, place + size)
        place += size if adds_up else 0
