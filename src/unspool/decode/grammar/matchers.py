"""How far each path has come in a grammar.

The state of the parser is a function of a path's tokens, and is kept only in order not to read them again: a
path goes on from where its beginning was, on a copy, so that beams fork and drafts are taken back. What is
not kept any more is read anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.decode.grammar.token_bytes import TokenBytes, parser
from unspool.decode.path import Path


@dataclass
class Place:
    """A place in the grammar: llguidance's matcher, which is never moved on, and what may follow."""

    matcher: Any
    begins: bool
    """Whether the text has not begun yet."""
    allowed: NDArray[np.bool_] | None = None


HEADER = '%llguidance {"no_forcing": true}'
"""Where one text alone is possible, llguidance allows its usual tokens only: here every spelling counts."""
DEAD_END = "NoExtensionBias"
"""What llguidance says where something may follow, and no token is a beginning of it."""


def _fault(matcher: Any) -> str:
    """What is wrong, in a line: the state of the parser follows it."""
    first, *_ = matcher.get_error().splitlines() or ["unknown"]
    return str(first)


class Matchers:
    """Which tokens a grammar allows after each path."""

    def __init__(self, lark: str, tokens: TokenBytes, kept: int) -> None:
        self._tokens, self._kept = tokens, kept
        self._start = parser().LLMatcher(tokens.known, f"{HEADER}\n{lark}", log_level=0)
        if self._start.is_error():
            raise ValueError(f"the grammar cannot be used: {_fault(self._start)}")
        self._places: OrderedDict[tuple[bool, tuple[int, ...]], Place] = OrderedDict()

    def allowed(self, history: Sequence[Path]) -> NDArray[np.bool_]:
        """(N, V): which tokens may follow each path."""
        return np.stack([self._after(path) for path in history])

    def _after(self, path: Path) -> NDArray[np.bool_]:
        place = self._place(self._tokens.begins(path), path.tokens)
        if place.allowed is None:
            place.allowed = self._tokens.allowed(place.matcher.compute_bitmask(), place.begins)
            if place.matcher.is_error() or not place.allowed.any():
                self._refuse(place, path)
        return place.allowed

    def _refuse(self, place: Place, path: Path) -> None:
        after = f"after {self._tokens.text.decode(path.tokens)!r:.80}"
        if place.matcher.is_error() and _fault(place.matcher) != DEAD_END:
            raise ValueError(f"{after} the grammar cannot be followed further: {_fault(place.matcher)}")
        raise ValueError(
            f"{after} the grammar allows nothing that this model's vocabulary can write: give a grammar in "
            "its characters or words"
        )

    def _place(self, begins: bool, tokens: tuple[int, ...]) -> Place:
        found = self._places.get((begins, tokens))
        if found is None:
            before, rest = self._places.get((begins, tokens[:-1])), tokens[-1:]
            if before is None or not tokens:
                before, rest = Place(self._start, begins), tokens
            found = self._moved(before, rest)
            self._places[begins, tokens] = found
            if len(self._places) > self._kept:
                self._places.popitem(last=False)
        self._places.move_to_end((begins, tokens))
        return found

    def _moved(self, place: Place, tokens: Sequence[int]) -> Place:
        matcher, begins = place.matcher.deep_copy(), place.begins
        for token in tokens:
            if not matcher.consume_token(self._tokens.id_of(token, begins)):
                raise ValueError(
                    f"token {token} ({self._tokens.text.show(token)!r}) is none that the grammar allows "
                    "here: another rule put it there. Put Grammar last."
                )
            begins = begins and bool(self._tokens.special[token])
        return Place(matcher, begins)


class RightToLeftChoices:
    """Which tokens lead to one of several texts, if a model writes a text's last token first.

    What is still unwritten of a choice is a beginning of it, and the next token must be the end of that. The
    token that stands first in the text may be spelled otherwise than later ones (without its space).
    """

    def __init__(self, choices: Sequence[str], tokens: TokenBytes) -> None:
        self._choices = {choice.encode() for choice in choices}
        self._tokens = tokens
        self._later = [tokens.text.piece(token) for token in range(tokens.size)]
        self._first = [tokens.text.piece(token, first=True) for token in range(tokens.size)]
        self._later_ids, self._first_ids = _ids_by_piece(self._later), _ids_by_piece(self._first)

    def allowed(self, history: Sequence[Path]) -> NDArray[np.bool_]:
        """(N, V): which tokens may precede what each path has written."""
        return np.stack([self._before(path) for path in history])

    def _before(self, path: Path) -> NDArray[np.bool_]:
        unwritten, complete = self._left(path.tokens)
        found = np.zeros(self._tokens.size, dtype=bool)
        for beginning in unwritten:
            found[self._first_ids.get(beginning, [])] = True
            for start in range(len(beginning)):
                if start or not self._tokens.twice:
                    found[self._later_ids.get(beginning[start:], [])] = True
        if complete:
            found[[token for token in self._tokens.ends if token < self._tokens.size]] = True
        if not found.any():
            raise ValueError(
                f"before {self._tokens.text.decode(path.tokens)!r:.80} no token of this model's vocabulary "
                "leads to a choice: give choices in its characters or words"
            )
        return found

    def _left(self, tokens: Sequence[int]) -> tuple[set[bytes], bool]:
        """The beginnings of choices that are still unwritten, and whether a choice is complete."""
        unwritten, complete = self._choices - {b""}, b"" in self._choices
        for token in tokens:
            later, first = self._later[token], self._first[token]
            if later and first:
                complete = first in unwritten
                unwritten = {it[: -len(later)] for it in unwritten if it.endswith(later) and it != later}
        return unwritten, complete


def _ids_by_piece(pieces: Sequence[bytes | None]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for token, piece in enumerate(pieces):
        if piece:
            found.setdefault(piece, []).append(token)
    return found
