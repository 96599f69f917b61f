"""Sharing the places of a beam among banks of hypotheses.

    w_c = ⌊w / B⌋,  the remainder to the last bank;  what bank c cannot fill goes to banks c±1, c±2, …

Post & Vilar 2018, §3 (bank allocation and adjustment).
papers.bib: post2018fast

Differs from the paper: of two neighbours equally near, the fuller one (the one with more of its phrases) is
served first.
"""

from __future__ import annotations

from collections.abc import Sequence


def allot(width: int, sizes: Sequence[int]) -> list[int]:
    """How many of the sizes[c] hypotheses of each bank are kept: `width` in all, or everything there is."""
    banks = len(sizes)
    places = [width // banks] * banks
    places[-1] += width % banks
    spare = [max(0, place - size) for place, size in zip(places, sizes, strict=True)]
    kept = [min(place, size) for place, size in zip(places, sizes, strict=True)]
    for bank in range(banks):
        for near in sorted(range(banks), key=lambda other: (abs(other - bank), -other)):
            given = min(spare[bank], sizes[near] - kept[near])
            kept[near] += given
            spare[bank] -= given
    return kept
