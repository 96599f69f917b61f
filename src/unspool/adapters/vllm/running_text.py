"""One text that vLLM is writing with a decoder of ours: its tokens so far, and its random stream.

vLLM tells how many tokens there are, and may call for a token that it then throws away (a prompt that is read
in several parts): the random stream goes back to where it was. It may also set a text aside and begin it
again later; what was remembered of it is then taken up where it was left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from unspool.adapters.vllm.asked_decoder import AskedDecoder
from unspool.decode.path import Path
from unspool.decode.rng import stream_key

UNTOLD = -1
"""What vLLM writes for a token that is not yet back from the device: it is the one that was drawn."""


@dataclass
class Drawn:
    """A token that was drawn, and may still be thrown away."""

    token: int
    logp: float
    score: float
    state: Any
    """The state of the random stream before."""


@dataclass(eq=False)
class RunningText:
    """A request's text as it grows."""

    decoder: AskedDecoder | None
    """It has looked at the model and the request; None where there is none that can."""
    seed: int
    prompt: tuple[int, ...]
    ends: frozenset[int]
    """Tokens that end it."""
    tokens: tuple[int, ...] = ()
    """Those that were there when it began here, of which no log-probabilities are known."""
    fault: str | None = None
    """Why it had to be ended."""
    path: Path = field(init=False)
    rng: Random = field(init=False)
    drawn: Drawn | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Rules see such tokens as a part of the prompt; a draw takes one number, but for rejections.
        self.path = Path(0, 0, (*self.prompt, *self.tokens))
        self.rng = Random(stream_key(self.seed, self.prompt, 0))
        for _ in self.tokens:
            self.rng.random()

    @property
    def written(self) -> tuple[int, ...]:
        """All of its tokens."""
        return (*self.tokens, *self.path.tokens)

    def follow(self, count: int, last: int) -> bool:
        """Go to where vLLM is: `count` tokens, of which `last` is the last. False where it is elsewhere."""
        known = len(self.tokens) + len(self.path.tokens)
        if self.drawn is not None and count == known:
            self.rng.setstate(self.drawn.state)
        elif self.drawn is not None and count == known + 1 and last in (UNTOLD, self.drawn.token):
            self.path = _grown(self.path, self.drawn)
        elif count != known:
            return False
        self.drawn = None
        return True

    def goes_on_with(self, prompt: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether a text that begins so is this one, set aside before."""
        pending = () if self.drawn is None else (self.drawn.token,)
        return self.prompt == tuple(prompt) and tuple(tokens) in (self.written, (*self.written, *pending))


def _grown(path: Path, drawn: Drawn) -> Path:
    return replace(
        path,
        tokens=(*path.tokens, drawn.token),
        logps=(*path.logps, drawn.logp),
        scores=(*path.scores, drawn.score),
    )
