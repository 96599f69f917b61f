"""What a beam held at every step, as a tree that can be shown.

Each node is a hypothesis that was kept: its last token, and the node it grew from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from unspool.protocols import Finish

Status = Literal["grown", "dropped", "open"] | Finish


class Node(NamedTuple):
    """One hypothesis of a beam."""

    parent: int
    """The place of the node it grew from; −1 for a first token."""
    token: int
    logp: float
    """log p of the token by the model itself."""
    score: float
    """Sum of the scores from the first token to this one: what the beam compared."""
    status: Status
    """grown: it was continued; dropped: better ones took its place; open: it was alive when the search
    stopped; else why it ended."""


class Tree:
    """Grows by one node for every hypothesis kept; a beam of width w costs w small tuples a step."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, float, float, Finish | None]] = []

    def add(self, parent: int, token: int, logp: float, score: float, finish: Finish | None) -> int:
        """The place of the new node."""
        self._nodes.append((parent, token, logp, score, finish))
        return len(self._nodes) - 1

    def nodes(self, alive: Iterable[int] = ()) -> tuple[Node, ...]:
        """Every node with its fate; `alive` are those that the search left standing."""
        grown = {parent for parent, *_ in self._nodes}
        alive = set(alive)

        def fate(place: int, finish: Finish | None) -> Status:
            return finish or ("grown" if place in grown else "open" if place in alive else "dropped")

        return tuple(
            Node(parent, token, logp, score, fate(place, finish))
            for place, (parent, token, logp, score, finish) in enumerate(self._nodes)
        )
