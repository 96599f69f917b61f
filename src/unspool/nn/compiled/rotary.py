"""Turning of queries and keys by their position, as `nn.positions` has it.

(x₁, x₂) → (x₁ cos − x₂ sin, x₂ cos + x₁ sin),   the halves of what is turned of every head, its beginning
"""

from __future__ import annotations

from typing import Any

from unspool.kernels.kernel import kernel


@kernel
def rotate(
    x: Any, at: int, heads: int, head_width: int, turned_width: int, cos: Any, sin: Any, place: int
) -> None:
    """The `heads` heads that begin at x[at], in place; `cos` and `sin` hold turned_width/2 for each place."""
    half = turned_width // 2
    turn = place * half
    for head in range(heads):
        left = at + head * head_width
        right = left + half
        for i in range(half):
            a, b = x[left + i], x[right + i]
            x[left + i] = a * cos[turn + i] - b * sin[turn + i]
            x[right + i] = b * cos[turn + i] + a * sin[turn + i]
