"""Searches: how paths grow from prompts to finished texts."""

from unspool.decode.search.ancestral import Sample
from unspool.decode.search.greedy import Greedy

SEARCHES: dict[str, type] = {"Greedy": Greedy, "Sample": Sample}

__all__ = ["SEARCHES", "Greedy", "Sample"]
