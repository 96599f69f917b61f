"""Conversations as most of the world keeps them: one JSON object a line, with a list of messages.

{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from unspool.characters import check_characters
from unspool.data.chats import ASSISTANT, Chats
from unspool.data.jsonl import json_field, json_object
from unspool.data.read import read_lines
from unspool.data.reading_progress import Advance
from unspool.data.row_forms import Row, RowForm
from unspool.data.text_files import TextFiles


@dataclass(frozen=True, kw_only=True)
class ChatJSONL(TextFiles):
    """One object a line, with the messages of a conversation. What the assistant says alone is learnt."""

    messages: str = "messages"
    """The field with the list of messages, each with a "role" and a "content"."""

    def form(self, rows: Iterable[Row]) -> RowForm:
        """What a row is."""
        del rows
        return Chats()

    def rows(self, path: str, advance: Advance) -> Iterator[Row]:
        """The rows of one file: messages up to the last of the assistant."""
        for number, line in enumerate(read_lines(path, self.max_line_bytes, advance), start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            said = _messages(json_field(json_object(line, where), self.messages, where), where)
            answers = [at for at, (role, _) in enumerate(said) if role == ASSISTANT]
            if not answers:
                raise ValueError(
                    f"{where}: no message is of the role {ASSISTANT!r}: there is no answer to learn"
                )
            yield tuple(it for message in said[: answers[-1] + 1] for it in message)


def _messages(found: Any, where: str) -> list[tuple[str, str]]:
    said = []
    for message in found if isinstance(found, list) else [found]:
        pair = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if not all(isinstance(it, str) for it in pair):
            raise ValueError(
                f'{where}: messages must be a list of objects with a "role" and a "content", all strings; '
                f"found {message!r:.60}"
            )
        said.append((check_characters(str(pair[0]), where), check_characters(str(pair[1]), where)))
    return said
