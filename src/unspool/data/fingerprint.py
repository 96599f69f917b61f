"""Names for what was made from something: equal names mean equal content, whatever the files are called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unspool.config import plain
from unspool.data.read import check_files, opened
from unspool.text import Codec

Files = Mapping[str, list[str]]
"""What each file holds: packed or not, it is the same."""

_FORMAT = 3
"""Raised whenever the same rows would be stored in another way."""


def of_settings(kind: type[Any], settings: dict[str, Any]) -> str:
    """Of settings that JSON can say."""
    return _digest([_FORMAT, kind.__name__, settings])


def of_files(data: Any) -> Files:
    """Of what each file of `data` holds, by the name of its setting; FileNotFoundError names one missing."""
    check_files(data.files())
    return {name: [_content(Path(path)) for path in paths] for name, paths in data.files().items()}


def of_data(data: Any, seed: int, files: Files | None = None) -> str:
    """Of the rows that `data` gives, and of which of them are held out: files count by what they hold.

    `files` is what `of_files` says, where that has been asked already.
    """
    settings = {**plain(data), **(of_files(data) if files is None else files)}
    return _digest([of_settings(type(data), settings), seed if data.holds_out else None])


def of_text(text: Codec) -> str:
    """Of the ids that `text` gives to every string, and to every source."""
    if text.source is not None:
        return together(of_text(replace(text, source=None)), of_text(text.source))
    order = ["right to left"] if text.right_to_left else []
    template = [] if text.chat_template is None else [text.chat_template]
    ends = [text.bos_id, text.add_bos, sorted(text.eos_ids)]
    return _digest([text.tokenizer.to_str(), *ends, text.literal, *template, *order])


def together(*names: str) -> str:
    """One name for several things together."""
    return _digest(list(names))


def _content(path: Path) -> str:
    with opened(path) as (content, _):
        return hashlib.file_digest(content, "sha256").hexdigest()


def _digest(said: Any) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]
