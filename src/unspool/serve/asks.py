"""What requests ask of the engine, where each waits for its answer, and which are answered together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from unspool.serve.shared_model import SharedModel


@dataclass(eq=False)
class Ask:
    """One request's question."""

    asker: SharedModel
    answer: Future[Any] = field(default_factory=Future, init=False)

    def enter(self, waiting: Round) -> None:
        """Go where the questions of its kind wait."""
        raise NotImplementedError

    def tell(self, found: Any) -> None:
        """Answer it, with an error where that was found; whoever has stopped waiting hears nothing."""
        with suppress(InvalidStateError):
            if isinstance(found, BaseException):
                self.answer.set_exception(found)
            else:
                self.answer.set_result(found)


@dataclass(eq=False)
class Start(Ask):
    """Read prompts."""

    prompts: Sequence[Sequence[int]]

    def enter(self, waiting: Round) -> None:
        """Beside other prompts."""
        waiting.starts.append(self)

    @property
    def tokens(self) -> int:
        """Of all prompts together."""
        return sum(map(len, self.prompts))


@dataclass(eq=False)
class Extension(Ask):
    """Append tokens (M, T) to these rows of a lane."""

    lane: Any
    rows: Sequence[int]
    tokens_MT: Tensor

    def enter(self, waiting: Round) -> None:
        """Beside other extensions."""
        waiting.extensions.append(self)


@dataclass(eq=False)
class Call(Ask):
    """Whatever else is to be done with the batch, and is done for this asker alone."""

    work: Callable[[Any], Any]

    def enter(self, waiting: Round) -> None:
        """Beside other calls."""
        waiting.calls.append(self)

    def done(self, batch: Any) -> Any:
        """What it gives, or the error that came of it."""
        try:
            return self.work(batch)
        except Exception as error:
            return error


@dataclass
class Round:
    """Questions that wait, by what can be done for many at once."""

    calls: list[Call] = field(default_factory=list)
    extensions: list[Extension] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)

    def __iter__(self) -> Iterator[Ask]:
        yield from self.calls
        yield from self.extensions
        yield from self.starts

    def __bool__(self) -> bool:
        return bool(self.calls or self.extensions or self.starts)

    def of(self, asker: SharedModel) -> list[Ask]:
        """What this one asks."""
        return [ask for ask in self if ask.asker is asker]

    def without(self, asker: SharedModel) -> Round:
        """What all the others ask."""
        others = Round()
        for ask in self:
            if ask.asker is not asker:
                ask.enter(others)
        return others

    def split(self, most: int) -> tuple[Round, Round]:
        """What is answered now, with `most` tokens of prompts or one asker's prompts, and what waits."""
        now = tokens = 0
        while now < len(self.starts) and (now == 0 or tokens + self.starts[now].tokens <= most):
            tokens += self.starts[now].tokens
            now += 1
        return Round(self.calls, self.extensions, self.starts[:now]), Round(starts=self.starts[now:])
