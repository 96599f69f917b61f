"""No length penalty: a hypothesis is worth the sum of its scores.

    s(y) = Σ_t log p(y_t | y_{<t})

The canonical score: the most probable text ranks first. Every token costs something, so that short
hypotheses are favoured, the more the wider the beam.
Stahlberg & Byrne 2019 (for many sources the most probable translation is empty).
papers.bib: stahlberg2019nmt
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sum:
    """Rank by the plain sum."""

    def __call__(self, total: float, length: int) -> float:  # noqa: ARG002
        """The sum itself, however long the hypothesis."""
        return total
