"""Texts to measure on: a plain file is one text, a file of JSON lines holds one in each "text" field.

An encoder–decoder is measured on pairs, which are JSON lines, too: "source" and "target".
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unspool.cli.json_lines import decoded, json_lines
from unspool.cli.prompts import JSONL_SUFFIXES

PAIR = '{"source": "…", "target": "…"}'


def read_texts(path: Path, limit: int | None = None) -> list[str]:
    """The texts of a file, the first `limit` of them."""
    if path.suffix.lower() in JSONL_SUFFIXES:
        texts = [text for _, (text,) in json_lines(path, ("text",), '{"text": "…"}')]
    else:
        content = decoded(path)
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
    pairs = [pair for _, pair in json_lines(path, ("source", "target"), PAIR)][:limit]
    if not pairs:
        raise ValueError(f"{path}: there is no pair in this file: write {PAIR} a line")
    return [source for source, _ in pairs], [target for _, target in pairs]


def asked_texts(model: Any, args: argparse.Namespace) -> tuple[list[str] | None, list[str]]:
    """What `args.text` holds for this model: an encoder–decoder has sources, too."""
    if model.text is None:
        raise ValueError(f"{args.model} has no tokenizer, so it cannot read {args.text}")
    return read_pairs(args.text, args.limit) if model.answers else (None, read_texts(args.text, args.limit))
