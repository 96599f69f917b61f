"""Which prompts are read in the next pass, and behind which rows that have read their beginning already.

    read(prompt) = fork(row*, c) + prompt_{>c},   row* = argmax_row c(row),   c = |common beginning|

Of prompts that come together and begin alike one is read first; the others then find its row
(Zheng et al. 2024, §3; papers.bib: zheng2024sglang).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from unspool.decode.sharing.row_texts import RowTexts

WORTH_WAITING = 64
"""Tokens that must be spared for a prompt to wait for another one: a pass reads as many at once."""


class Fork(NamedTuple):
    """A prompt, and the row whose first `length` tokens are its beginning."""

    prompt: int
    row: int
    length: int


def next_pass(
    texts: RowTexts, prompts: Sequence[Sequence[int]], waiting: Sequence[int]
) -> tuple[list[Fork], list[int]]:
    """Those of the waiting prompts that are read now, and those that wait for one of these."""
    now, later, reading = list[Fork](), list[int](), RowTexts()
    for place in waiting:
        text = prompts[place][:-1]  # the last token is read again: the first Step is about what follows it
        row, length = texts.nearest(text)
        if reading.nearest(text)[1] >= length + WORTH_WAITING:
            later.append(place)
        else:
            now.append(Fork(place, row, length))
            reading.add([prompts[place]])
    return now, later
