"""Texts to measure on: a plain file is one text, a file of JSON lines holds one in each "text" field.

An encoder–decoder is measured on pairs, which are JSON lines, too: "source" and "target".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from unspool.cli.prompts import JSONL_SUFFIXES

PAIR = '{"source": "…", "target": "…"}'


def read_texts(path: Path, limit: int | None = None) -> list[str]:
    """The texts of a file, the first `limit` of them."""
    if path.suffix.lower() in JSONL_SUFFIXES:
        texts = [text for (text,) in _records(path, ("text",), '{"text": "…"}')]
    else:
        content = _content(path)
        texts = [content] if content.strip() else []
    if not texts:
        raise ValueError(f"{path}: there is no text in this file")
    return texts[:limit]


def read_pairs(path: Path, limit: int | None = None) -> tuple[list[str], list[str]]:
    """The sources and the targets of a file, the first `limit` of them."""
    if path.suffix.lower() not in JSONL_SUFFIXES:
        raise ValueError(
            f"{path}: the model is an encoder–decoder, which says nothing of a text without its source: give "
            f"a file of pairs, {PAIR} a line, whose name ends in .jsonl"
        )
    pairs = list(_records(path, ("source", "target"), PAIR))[:limit]
    if not pairs:
        raise ValueError(f"{path}: there is no pair in this file: write {PAIR} a line")
    return [source for source, _ in pairs], [target for _, target in pairs]


def _records(path: Path, keys: tuple[str, ...], wanted: str) -> Iterator[tuple[str, ...]]:
    """The strings of these fields, of every line that is not blank."""
    # Not splitlines(): a text may hold U+2028 and its kin.
    for number, line in enumerate(_content(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: not JSON ({error}); expected {wanted}") from None
        if not isinstance(record, dict) or not all(isinstance(record.get(key), str) for key in keys):
            raise ValueError(f"{path}:{number}: expected {wanted}, found {line[:60]}")
        yield tuple(record[key] for key in keys)


def _content(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
