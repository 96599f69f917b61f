"""A conversation with a model: what was said so far, the next answer, and the way back.

    answer_t ~ search( model | template(system, said_1, answer_1, …, said_t) )

Where the whole conversation does not fit into the model's context, the model reads it without its oldest
turns; `messages` keeps them. An answer is the one that `generate` gives to the same messages with the same
seed; a turn that was taken back and asked again gets the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool import config
from unspool.decode.arguments import as_whole, items, shown
from unspool.decode.batching import CachedPrefixModel
from unspool.decode.combine.lockstep import check_model
from unspool.decode.generate import generate, stream
from unspool.decode.loops import OnLoop
from unspool.decode.output import Output, Piece
from unspool.decode.prompts import ids_of, tokens_left
from unspool.decode.rng import fresh_seed
from unspool.decode.spec import as_decoder
from unspool.interfaces import Decoder, StepModel
from unspool.io import new_file

KEPT_BYTES = 2**28
"""Memory for what was read, besides what the turn that runs needs."""
ROOM = 4
"""A conversation may fill the context but for a part in so many, which is left for the answer."""


@dataclass
class Chat:
    """Chat(model): `ask` it, or `stream` what it answers; `undo` takes the last turn back."""

    model: StepModel
    decoder: Decoder | None = None
    """How answers are decoded, as `generate` does where none is given. It may be changed at any time."""
    system: str | None = None
    """What the model is told before the first turn."""
    seed: int | None = None
    """Of the whole conversation; a new one where none is given. It may be changed at any time."""
    max_new_tokens: int = config.MAX_CHAT_TOKENS
    """Of each answer."""
    on_loop: OnLoop = "stop"
    """What happens to an answer that goes round in circles."""
    messages: list[dict[str, str]] = field(default_factory=list)
    """What was said, as {"role": "user" or "assistant", "content": …}; one may be given to go on with."""

    def __post_init__(self) -> None:
        check_model(self.model)
        self.decoder = as_decoder(self.decoder)
        if self.seed is None:
            self.seed = fresh_seed()
        self.messages = [*items("Chat.messages", self.messages, "a list of messages")]
        self._reader: CachedPrefixModel | None = None

    def ask(self, said: str) -> Output:
        """The answer to what is said, which is then a part of the conversation."""
        output: Output = generate(self._model(), self._read(said), self.decoder, **self._options())
        self._keep(said, output.text)
        return output

    def stream(self, said: str) -> Iterator[Piece]:
        """The same in pieces, as they come. Who stops listening has heard a shorter answer."""
        return self._heard(said, stream(self._model(), self._read(said), self.decoder, **self._options()))

    def undo(self) -> str:
        """Take the last turn back; what was said in it."""
        while self.messages:
            message = self.messages.pop()
            if message["role"] == "user":
                return message["content"]
        raise ValueError("there is nothing to take back: nothing has been said yet")

    def save(self, path: str | Path) -> None:
        """Write the conversation as JSON, with the decoder and the seed."""
        facts = {"decoder": repr(self.decoder), "seed": self.seed, "messages": self._told(self.messages)}
        with new_file(Path(path)) as fresh:
            fresh.write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    def _read(self, said: str) -> tuple[int, ...]:
        """The conversation in tokens, without its oldest turns where it is too long."""
        if not isinstance(said, str) or not said.strip():
            raise ValueError(f"{shown(said)} was said: say something, as a string")
        messages = [*self.messages, {"role": "user", "content": said}]
        while True:
            ids = ids_of(self.model, self._told(messages), 0)
            free = tokens_left(self.model, ids)
            turns = [place for place, message in enumerate(messages) if message["role"] == "user"]
            if free is None or free >= self._wanted() or len(turns) < 2:
                return ids
            messages = messages[turns[1] :]

    def _model(self) -> StepModel:
        """The model, or one that remembers for it what of the conversation it has read."""
        if self.model.forking is None:
            return self.model
        if self._reader is None or self._reader.model is not self.model:
            self._reader = CachedPrefixModel(self.model, KEPT_BYTES)
        return self._reader

    def _wanted(self) -> int:
        """How many tokens must be left for an answer."""
        return min(self.max_new_tokens, (self.model.context or 0) // ROOM)

    def _told(self, messages: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        told = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*told, *messages]

    def _options(self) -> dict[str, Any]:
        seed = as_whole("Chat.seed", self.seed, at_least=0, advice="Any number will do.")
        return {"max_new_tokens": self.max_new_tokens, "seed": seed, "on_loop": self.on_loop}

    def _heard(self, said: str, pieces: Iterator[Piece]) -> Iterator[Piece]:
        heard = ""
        try:
            for piece in pieces:
                heard += piece.text
                yield piece
        except (KeyboardInterrupt, GeneratorExit):
            self._keep(said, heard)
            raise
        self._keep(said, heard)

    def _keep(self, said: str, answer: str) -> None:
        self.messages += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
