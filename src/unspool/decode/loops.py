"""Find the loop that a text has run into, exactly and as it grows.

    x ends in a loop of period p  ⇔  x_t = x_{t−p} for the last max(r·p, s) tokens,   smallest such p

A model that sees a bounded past and takes its most probable token must repeat itself: there are only so many
pasts (Holtzman et al. 2020, §4, fig. 9; papers.bib: holtzman2020curious). r = `repeats`, s = `span`.

Only a period p with x_{T−p} = x_T can be one, so that a step costs no more than looking at the places where
the last token stood before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from unspool.decode.arguments import as_whole, function_of, shown
from unspool.decode.path import Path
from unspool.protocols import Judge

STOP_SPAN = 16
"""A loop must be this long before a text is stopped for it: a row of dots is no loop yet."""


@dataclass(frozen=True, slots=True)
class Loop:
    """x_t = x_{t − period} for every t from start + period to the end."""

    start: int
    """The first token of the part that is periodic."""
    period: int
    repeats: float
    """How often the period fits into that part."""


OnLoop = Literal["ignore", "stop"] | Callable[[Path, Loop], bool]


def find_loop(tokens: Sequence[Hashable], repeats: int = 3, span: int = 6) -> Loop | None:
    """The loop of smallest period that the tokens end in, from its earliest start; None where there is none.

    `repeats` times the period and `span` tokens must be periodic. The defaults are Holtzman et al.'s: a
    phrase of two tokens or more, three times (one token must come as often as such a phrase would).
    """
    repeats = as_whole("repeats", repeats, at_least=2, advice="What comes once is no loop.")
    span = as_whole("span", span, at_least=0, advice="0 asks for nothing but the repeats.")
    tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    if not isinstance(tokens, Sequence):
        raise TypeError(
            f"tokens is {shown(tokens)}, but must be a list or a tuple of tokens, in their order."
        )
    last = len(tokens) - 1
    for period in range(1, len(tokens) // repeats + 1):
        if tokens[last] != tokens[last - period]:
            continue
        needed = max(repeats * period, span)
        if needed > len(tokens):
            continue
        if tokens[-needed + period :] == tokens[-needed:-period]:
            start = len(tokens) - needed
            while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
                start -= 1
            return Loop(start, period, (len(tokens) - start) / period)
    return None


@dataclass(frozen=True)
class LoopJudge:
    """Ends a path that loops, if `agrees` says so, and notes the loop."""

    agrees: Callable[[Path, Loop], bool]
    repeats: int = 3
    span: int = STOP_SPAN

    def __call__(self, path: Path) -> Path:
        """The path as it is, or ended."""
        loop = find_loop(path.tokens, self.repeats, self.span)
        if loop is None or not self.agrees(path, loop):
            return path
        return replace(path, finish="loop", notes={**path.notes, "loop": loop})


def loop_judge(on_loop: OnLoop) -> Judge | None:
    """What `generate(on_loop=…)` asks for."""
    if function_of(on_loop, 2):
        return LoopJudge(on_loop)  # type: ignore[arg-type]
    choices: dict[str, Judge | None] = {"ignore": None, "stop": LoopJudge(lambda path, loop: True)}  # noqa: ARG005
    if not isinstance(on_loop, str) or on_loop not in choices:
        raise ValueError(
            f"on_loop={shown(on_loop)} is unknown: choose from {', '.join(map(repr, choices))}, "
            "or give a function of a path and its Loop that returns True to stop"
        )
    return choices[on_loop]
