"""Chat: a conversation with a model.

    answer_t ~ decoder( model | template(system, message_1, answer_1, …, message_t) )

If the conversation does not fit into the context, the model reads it without its oldest turns; `messages`
keeps them. An answer equals that of `generate` for the same messages and seed, so that a repeated turn gets
the same answer. The prefix cache keeps the conversation read so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unspool import config
from unspool.arguments import as_int, items, shown
from unspool.decode.batching import CachedPrefixModel
from unspool.decode.generate import generate, stream
from unspool.decode.lockstep import check_model
from unspool.decode.loops import OnLoop
from unspool.decode.output import Output, Piece
from unspool.decode.prompts import ids_of, tokens_left
from unspool.decode.rng import fresh_seed
from unspool.decode.spec import as_decoder
from unspool.interfaces import Decoder, StepModel
from unspool.io import new_file

CACHE_BYTES = 2**28
ANSWER_SHARE = 4
"""At least 1/ANSWER_SHARE of the context is left for the answer."""


@dataclass
class Chat:
    """Chat(model): `ask` or `stream` an answer, `undo` the last turn, `save` the conversation."""

    model: StepModel
    decoder: Decoder | str | None = None
    """A decoder or its string; None: the default of `generate`. It may change at any time."""
    system: str | None = None
    seed: int | None = None
    """Seed of all turns; None draws one. It may change at any time."""
    max_new_tokens: int = config.MAX_CHAT_TOKENS
    on_loop: OnLoop = "stop"
    """As in `generate`."""
    messages: list[dict[str, str]] = field(default_factory=list)
    """The conversation so far, as {"role": "user" or "assistant", "content": …}."""

    def __post_init__(self) -> None:
        check_model(self.model)
        self.decoder = as_decoder(self.decoder)
        if self.seed is None:
            self.seed = fresh_seed()
        self.messages = [*items("Chat.messages", self.messages, "a list of messages")]
        self._cached: CachedPrefixModel | None = None

    def ask(self, message: str) -> Output:
        """Answer a message, and append both to the conversation."""
        output: Output = generate(self._model(), self._prompt(message), self.decoder, **self._options())
        self._append(message, output.text)
        return output

    def stream(self, message: str) -> Iterator[Piece]:
        """Stream the answer; if the iteration stops early, the conversation has the shorter answer."""
        pieces = stream(self._model(), self._prompt(message), self.decoder, **self._options())
        return self._record(message, pieces)

    def undo(self) -> str:
        """Remove the last turn and return its message."""
        while self.messages:
            last = self.messages.pop()
            if last["role"] == "user":
                return last["content"]
        raise ValueError("the conversation is empty: there is no turn to undo")

    def save(self, path: str | Path) -> None:
        """Save the conversation as JSON, with the decoder and the seed."""
        messages = self._with_system(self.messages)
        facts = {"decoder": repr(self.decoder), "seed": self.seed, "messages": messages}
        with new_file(Path(path)) as fresh:
            fresh.write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

    def _prompt(self, message: str) -> tuple[int, ...]:
        """The tokens of the conversation, without its oldest turns if it is too long."""
        if not isinstance(message, str) or not message.strip():
            raise ValueError(f"the message is {shown(message)}, but must be a string that is not empty")
        messages = [*self.messages, {"role": "user", "content": message}]
        min_answer = min(self.max_new_tokens, (self.model.context or 0) // ANSWER_SHARE)
        while True:
            ids = ids_of(self.model, self._with_system(messages), 0)
            left = tokens_left(self.model, ids)
            turns = [index for index, each in enumerate(messages) if each["role"] == "user"]
            if left is None or left >= min_answer or len(turns) < 2:
                return ids
            messages = messages[turns[1] :]

    def _model(self) -> StepModel:
        """The model, with a prefix cache if it can have one."""
        if self.model.forking is None:
            return self.model
        if self._cached is None or self._cached.model is not self.model:
            self._cached = CachedPrefixModel(self.model, CACHE_BYTES)
        return self._cached

    def _with_system(self, messages: Sequence[dict[str, str]]) -> list[dict[str, str]]:
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, *messages]

    def _options(self) -> dict[str, Any]:
        seed = as_int("Chat.seed", self.seed, at_least=0, advice="Any number will do.")
        return {"max_new_tokens": self.max_new_tokens, "seed": seed, "on_loop": self.on_loop}

    def _record(self, message: str, pieces: Iterator[Piece]) -> Iterator[Piece]:
        answer = ""
        try:
            for piece in pieces:
                answer += piece.text
                yield piece
        except (KeyboardInterrupt, GeneratorExit):
            self._append(message, answer)
            raise
        self._append(message, answer)

    def _append(self, message: str, answer: str) -> None:
        self.messages += [{"role": "user", "content": message}, {"role": "assistant", "content": answer}]
