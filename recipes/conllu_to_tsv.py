"""Make files of tags and of genres from a treebank in the CoNLL-U format, such as UD English EWT.

    for part in train dev test; do
        python recipes/conllu_to_tsv.py en_ewt-ud-$part.conllu --output ewt/$part
    done

Written: ewt/train.tags.tsv, with the words and the universal parts of speech of a sentence a line; and
ewt/train.genres.tsv, with its genre and its text: what stands before the first "-" of its sent_id, as "email"
in "email-enronsent28_02-0040".
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sentence:
    """A sentence of a treebank."""

    genre: str
    text: str
    words: tuple[str, ...]
    tags: tuple[str, ...]


def sentences(content: str) -> Iterator[Sentence]:
    """The sentences of a file; ranges of words (2-3) and words that are not written (8.1) are left out."""
    for number, block in enumerate(content.split("\n\n"), start=1):
        lines = [line for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        facts = dict(line[1:].split(" = ", 1) for line in lines if line[0] == "#" and " = " in line)
        facts = {name.strip(): fact.strip() for name, fact in facts.items()}
        rows = [line.split("\t") for line in lines if line[0] != "#"]
        short = [row for row in rows if len(row) < 4]
        if short:
            raise SystemExit(f"sentence {number}: expected columns with tabs between them, found {short[0]}")
        rows = [row for row in rows if row[0].isdigit()]
        yield Sentence(
            genre=facts.get("sent_id", "").partition("-")[0],
            text=" ".join(facts.get("text", "").split()),
            words=tuple("_".join(row[1].split()) for row in rows),
            tags=tuple(row[3] for row in rows),
        )


def main() -> int:
    """Read a treebank, write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("treebank", type=Path, help="a file in the CoNLL-U format")
    parser.add_argument("--output", type=Path, required=True, help="prefix of the names of the two files")
    args = parser.parse_args()
    if not args.treebank.is_file():
        raise SystemExit(f"{args.treebank} is not there: give a file in the CoNLL-U format")
    found = list(sentences(args.treebank.read_text(encoding="utf-8")))
    args.output.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "tags": [(" ".join(it.words), " ".join(it.tags)) for it in found if it.words],
        "genres": [(it.genre, it.text) for it in found if it.genre and it.text],
    }
    for name, rows in columns.items():
        path = args.output.with_name(f"{args.output.name}.{name}.tsv")
        path.write_text("".join(f"{first}\t{second}\n" for first, second in rows), encoding="utf-8")
        print(f"{path}: {len(rows)} sentences")
    return 0


if __name__ == "__main__":
    sys.exit(main())
