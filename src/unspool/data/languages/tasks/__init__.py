"""Tiny tasks with one right answer each, as translations from a source to a target."""

from typing import Any

from unspool.data.languages.tasks.addition import Addition
from unspool.data.languages.tasks.dates import Dates
from unspool.data.languages.tasks.number_words import NumberWords
from unspool.data.languages.tasks.symbol_rows import Copying, Reversing, Sorting

TASKS: dict[str, type[Any]] = {
    "addition": Addition,
    "copy": Copying,
    "dates": Dates,
    "number_words": NumberWords,
    "reverse": Reversing,
    "sort": Sorting,
}

__all__ = ["TASKS", "Addition", "Copying", "Dates", "NumberWords", "Reversing", "Sorting"]
