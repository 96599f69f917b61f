"""Arithmetic without rounding: a float is a whole number times a power of two, and so are sums of products.

    xⱼ = nⱼ·2^k      Σⱼ xⱼyⱼ = 2^(k+l)·Σⱼ nⱼmⱼ      Σₖ xₖ·rowₖ = wanted, solved by elimination

Whole numbers are Python's own, which have as many digits as they need: nothing overflows, underflows or is
rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from operator import mul

import numpy as np

from unspool.basis.arrays import Array


class Exact:
    """Numbers n·2^k with one k for all: `Exact.of(floats)`."""

    def __init__(self, wholes: list[int], power: int) -> None:
        self.wholes, self.power = wholes, power

    @classmethod
    def of(cls, x_N: Array) -> Exact:
        """The floats, exactly."""
        digits_N, power_N = np.frexp(x_N)
        power = int(power_N[x_N != 0].min(initial=0))
        shift_N = np.where(x_N != 0, power_N - power, 0)
        whole_N = np.ldexp(digits_N, 53).astype(np.int64)
        return cls([n << k for n, k in zip(whole_N.tolist(), shift_N.tolist(), strict=True)], power - 53)

    def __add__(self, other: Exact) -> Exact:
        low, high = (self, other) if self.power <= other.power else (other, self)
        up = high.power - low.power
        return Exact([n + (m << up) for n, m in zip(low.wholes, high.wholes, strict=True)], low.power)

    def dot(self, other: Exact) -> Fraction:
        """Σⱼ xⱼyⱼ."""
        whole: int = sum(map(mul, self.wholes, other.wholes))
        return whole * power_of_two(self.power + other.power)

    def fractions(self) -> list[Fraction]:
        """The numbers, one by one."""
        unit = power_of_two(self.power)
        return [n * unit for n in self.wholes]


def power_of_two(k: int) -> Fraction:
    """2^k."""
    return Fraction(1 << k) if k >= 0 else Fraction(1, 1 << -k)


def combination(rows: Sequence[Sequence[Fraction]], wanted: Sequence[Fraction]) -> list[Fraction] | None:
    """x with Σₖ xₖ·rowₖ = wanted, or None where there is none; a row that others make up has x = 0.

    Elimination in whole numbers: every division comes out even, since what is divided are minors.
    Bareiss 1968. papers.bib: bareiss1968sylvester
    """
    left = [_wholes(equation) for equation in zip(*rows, wanted, strict=True)]  # one for each column
    known: list[tuple[int, list[int]]] = []
    before = 1
    for k in range(len(rows)):
        at = next((at for at, equation in enumerate(left) if equation[k]), None)
        if at is None:
            continue
        first = left.pop(at)
        pivot, rest = first[k], first[k + 1 :]
        for equation in left:
            factor = equation[k]
            pairs = zip(equation[k + 1 :], rest, strict=True)
            equation[k + 1 :] = [(pivot * x - factor * y) // before for x, y in pairs]
        known.append((k, first))
        before = pivot
    if any(equation[-1] for equation in left):
        return None
    x = [Fraction(0)] * len(rows)
    for k, equation in reversed(known):
        others = sum((a * x[j] for j, a in enumerate(equation[k + 1 : -1], k + 1) if x[j]), Fraction(0))
        x[k] = (equation[-1] - others) / equation[k]
    return x


def _wholes(equation: Sequence[Fraction]) -> list[int]:
    """The equation times the least number that leaves no fraction in it."""
    unit = lcm(*(x.denominator for x in equation))
    return [x.numerator * (unit // x.denominator) for x in equation]
