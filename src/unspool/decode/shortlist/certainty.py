"""When a sum in single precision leaves no doubt.

    f = Σ_S w / Σ w;   if every w may be off by ε of itself,  f is off by 2 f (1 − f) ε at most

A rule, or the roll of the dice, compares such a share with a number; where the two are nearer than that, the
row is in doubt, and the referee decides.
"""

from __future__ import annotations

from typing import Any

ROUNDING = 3e-7
"""Of a weight: twice the largest error ever seen in a float32 softmax, but for a factor of the row."""
BLOCKS = 1e-6
"""Of a block's sum in single precision, its weights' errors included: twice the largest ever seen."""
SLACK = 1e-12
"""Of a row's weight: what sums in double precision are off at most."""


def doubt(share: Any, rounding: float = ROUNDING) -> Any:
    """By how much a share of a row's weight may be off."""
    return 2 * rounding * share * (1 - share) + SLACK
