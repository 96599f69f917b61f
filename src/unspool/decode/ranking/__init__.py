"""Ranking: what a hypothesis is worth when it has ended, and when a ranking search may stop."""

from unspool.decode.ranking.coverage import Coverage
from unspool.decode.ranking.gnmt import GNMT
from unspool.decode.ranking.length import Length
from unspool.decode.ranking.stop import FirstFull, Heuristic, Proved
from unspool.decode.ranking.sum import Sum

RANKING: dict[str, type] = {
    "Coverage": Coverage,
    "FirstFull": FirstFull,
    "GNMT": GNMT,
    "Heuristic": Heuristic,
    "Length": Length,
    "Proved": Proved,
    "Sum": Sum,
}

__all__ = ["GNMT", "RANKING", "Coverage", "FirstFull", "Heuristic", "Length", "Proved", "Sum"]
