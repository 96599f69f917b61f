"""Seconds of every engine in turn, round after round; ratios within a round.

What disturbs the machine disturbs all engines of a round, so that a ratio is steadier than either time.

    ratio  =  seconds of the reference / own seconds
    share  =  bytes of weights × new tokens / (own seconds × bytes read a second)

The share is of the machine's limit: every token needs all weights once, for however many rows. Seconds include
the reading of the prompt, which costs less a token than writing does, but is not nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from peers.process import Answer
from peers.work import Work

WARM_UP = 4
"""Tokens of a first, unmeasured text."""
REST = 0.05
"""Seconds in which the threads of one engine fall asleep before the next begins."""


class Generates(Protocol):
    def generate(self, work: Work) -> Answer: ...


@dataclass(frozen=True)
class Result:
    """What one engine did in all rounds of a mode."""

    seconds: list[float]
    tokens_per_second: float
    ratios: list[float]
    """Of the reference's seconds to its own, by round; none without a reference."""
    shares: list[float]
    """Of the machine's limit, by round."""
    tokens: list[list[int]]


def measure(
    engines: Mapping[str, Generates],
    work: Work,
    rounds: int,
    bandwidth: Callable[[], float],
    say: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, list[Answer]], list[float]]:
    """Every engine's answers, and what the machine read a second, by round."""
    for engine in engines.values():
        engine.generate(replace(work, new=WARM_UP))
    answers: dict[str, list[Answer]] = {name: [] for name in engines}
    read = []
    for number in range(rounds):
        read.append(bandwidth())
        for name, engine in engines.items():
            time.sleep(REST)
            answer = engine.generate(work)
            if {len(row) for row in answer.tokens} != {work.new} or len(answer.tokens) != len(work.prompts):
                lengths = [len(row) for row in answer.tokens]
                raise RuntimeError(f"{name} wrote {lengths} tokens instead of {work.new} for each prompt")
            answers[name].append(answer)
        seconds = sum(its[-1].seconds for its in answers.values())
        say(f"round {number + 1} of {rounds}: {seconds:.0f} s")
    return answers, read


def result(
    answers: Sequence[Answer],
    reference: Sequence[Answer] | None,
    work: Work,
    weight_bytes: int,
    bytes_per_second: Sequence[float],
) -> Result:
    seconds = [answer.seconds for answer in answers]
    pairs = zip(reference, seconds, strict=True) if reference is not None else ()
    return Result(
        seconds=seconds,
        tokens_per_second=work.new * len(work.prompts) / median(seconds),
        ratios=[theirs.seconds / own for theirs, own in pairs],
        shares=[
            weight_bytes * work.new / (own * read)
            for own, read in zip(seconds, bytes_per_second, strict=True)
        ],
        tokens=answers[0].tokens,
    )


def first_difference(own: Sequence[Sequence[int]], reference: Sequence[Sequence[int]]) -> int | None:
    """The first place, counted over all rows one after the other, where two answers part; None: nowhere."""
    mine = [token for row in own for token in row]
    theirs = [token for row in reference for token in row]
    if mine == theirs:
        return None
    pairs = enumerate(zip(mine, theirs, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(mine), len(theirs)))
