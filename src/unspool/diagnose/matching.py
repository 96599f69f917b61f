"""The setting of a rule that rejects a given share of tokens, from the strictest one that each survives.

    of N critical settings, in the order in which a rule grows stricter, ⌊share·N⌋ are passed over

Tokens with equal critical settings are rejected together or not at all, so that fewer may be rejected than
asked for; never more. On other text of the same kind the share differs: the 95 % interval of a share of N
tokens (Wilson's) says by how much. It counts tokens as independent, which those of one text are not quite.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from math import isinf, sqrt

from unspool.diagnose.critical_settings import Criterion


@dataclass(frozen=True)
class Match:
    """A sampler, set so that it rejects a share of the tokens of a text."""

    sampler: str
    setting: float
    decoder: str
    """As `unspool.parse` reads it."""
    share: float
    """The share of tokens that was to be rejected …"""
    rejected: float
    """… and the one that is."""
    tokens: int
    """How many tokens that was measured on."""
    low: float
    high: float
    """The 95 % interval of the share that is rejected of other text of the same kind."""


class First:
    """The first critical settings that a rule passes over as it grows stricter: as many as are needed."""

    def __init__(self, criterion: Criterion, shares: Sequence[float], tokens: int) -> None:
        self.criterion = criterion
        self.tokens = tokens
        self._count = max(_passed(share, tokens) for share in shares) + 1
        self._sign = 1 if criterion.rising else -1
        self._heap: list[float] = []

    def needs(self, critical: float) -> bool:
        """Whether a token that survives this setting, and maybe stricter ones, may be among the first."""
        return len(self._heap) < self._count or self._sign * critical < -self._heap[0]

    def push(self, critical: float) -> None:
        """Take one more token into account."""
        self.extend([critical])

    def extend(self, criticals: Iterable[float]) -> None:
        """Take more tokens into account."""
        for critical in criticals:
            key = -self._sign * critical
            if len(self._heap) < self._count:
                heappush(self._heap, key)
            elif key > self._heap[0]:
                heappushpop(self._heap, key)

    def match(self, share: float) -> Match:
        """The setting that rejects this share."""
        order = sorted(-key for key in self._heap)
        survivor = order[_passed(share, self.tokens)]
        rejected = sum(key < survivor for key in order)
        before = order[rejected - 1] if rejected else self._sign * self.criterion.loosest
        setting = self._sign * (survivor if self.criterion.whole else _between(before, survivor))
        decoder = self.criterion.decoder(setting)
        low, high = share_interval(rejected, self.tokens)
        return Match(
            self.criterion.name, setting, decoder, share, rejected / self.tokens, self.tokens, low, high
        )


def share_interval(count: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share: [p + z²/2n ± z √(p(1−p)/n + z²/4n²)] / (1 + z²/n)."""
    p, scale = count / of, 1 + z * z / of
    middle = p + z * z / (2 * of)
    reach = z * sqrt(p * (1 - p) / of + (z / (2 * of)) ** 2)
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def _passed(share: float, tokens: int) -> int:
    if not 0 <= share < 1:
        raise ValueError(f"share is {share}, but must be at least 0 and below 1, such as 0.01 for 1 %.")
    return int(share * tokens + 1e-9)


def _between(before: float, after: float) -> float:
    """Halfway, where neither rounding nor "<" against "≤" changes what is rejected; or well beyond."""
    if isinf(before):
        return after - max(abs(after), 1.0)
    return before + max(abs(before), 1.0) if isinf(after) else (before + after) / 2
