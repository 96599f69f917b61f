"""Texts to measure on: a plain file is one text, a file of JSON lines holds one in each "text" field."""

from __future__ import annotations

import json
from pathlib import Path

from unspool.cli.prompts import JSONL_SUFFIXES


def read_texts(path: Path, limit: int | None = None) -> list[str]:
    """The texts of a file, the first `limit` of them."""
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error}") from None
    if path.suffix.lower() not in JSONL_SUFFIXES:
        texts = [content] if content.strip() else []
    else:
        # Not splitlines(): a text may hold U+2028 and its kin.
        lines = enumerate(content.split("\n"), start=1)
        texts = [_text(line, f"{path}:{number}") for number, line in lines if line.strip()]
    if not texts:
        raise ValueError(f"{path}: there is no text in this file")
    return texts[:limit]


def _text(line: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{where}: not JSON ({error}); expected {{"text": "…"}}') from None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise ValueError(f'{where}: expected {{"text": "…"}}, found {line[:60]}')
    return str(record["text"])
