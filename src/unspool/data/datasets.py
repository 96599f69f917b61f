"""The kinds of data in a recipe's [data] section."""

from __future__ import annotations

from unspool.data.chats import ChatJSONL, ChatLines
from unspool.data.known_languages.made_data import LanguageData, TaskData
from unspool.data.line_formats import JSONL, TSV, Dialogues, LabelledLines, Lines, Parallel, TaggedLines
from unspool.data.rows import Data

DATA: dict[str, type[Data]] = {
    "chat_jsonl": ChatJSONL,
    "chat_lines": ChatLines,
    "dialogues": Dialogues,
    "jsonl": JSONL,
    "labelled": LabelledLines,
    "language": LanguageData,
    "lines": Lines,
    "parallel": Parallel,
    "tagged": TaggedLines,
    "task": TaskData,
    "tsv": TSV,
}
