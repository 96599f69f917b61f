"""One request's answer as it grows: pieces become chunks of a stream, or all of it one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool.decode.output import Piece
from unspool.protocols import Text
from unspool.serve.answers import FINISH, Choice, Envelope, Form, usage
from unspool.serve.generation import Begun
from unspool.serve.request_fields import DecodingFields


class GrowingAnswer:
    """What has been told of a request so far; its text comes from `Piece`s."""

    def __init__(
        self,
        form: Form,
        body: DecodingFields,
        text: Text | None,
        alternatives: int | None,
        *,
        echo: bool = False,
    ) -> None:
        self.body, self.envelope, self.new = body, Envelope(form, body.model), 0
        self._form, self._text, self._alternatives, self._echo = form, text, alternatives, echo
        self._choices: dict[tuple[int, int], Choice] = {}
        self._length: dict[tuple[int, int], int] = {}

    def add(self, piece: Piece) -> None:
        """Keep a piece for the whole answer."""
        self._choices.setdefault((piece.request, piece.sample), Choice()).add(piece)

    def whole(self, begun: Begun) -> dict[str, Any]:
        """The finished answer."""
        choices = []
        for request, prompt in enumerate(begun.job.prompts):
            texts = [self._choices[key] for key in sorted(self._choices) if key[0] == request]
            if len(texts) > self.body.n:
                texts = sorted(texts, key=lambda text: -text.mean)[: self.body.n]
            for sample, text in enumerate(texts or [Choice(finish="length")] * self.body.n):
                shown = self._with_prompt(begun, request, prompt, text)
                record = {
                    "index": request * self.body.n + sample,
                    **self._form.whole(shown),
                    "logprobs": self._logs(shown, 0),
                    "finish_reason": FINISH[text.finish],
                }
                choices.append(record)
        return self.envelope.whole(choices, usage(begun.job.prompts, self.new))

    def echoed(self, begun: Begun) -> list[dict[str, Any]]:
        """Chunks that repeat the prompts, where that was asked for."""
        if not self._echo:
            return []
        found = []
        for request, prompt in enumerate(begun.job.prompts):
            text = self._with_prompt(begun, request, prompt, Choice())
            for sample in range(self.body.n):
                self._length[request, sample] = len(text.text)
                found.append(self._part((request, sample), text.text, text, 0, None))
        return [self.envelope.chunk([each]) for each in found]

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """One piece as a chunk."""
        key = (piece.request, piece.sample)
        offset = self._length.get(key, 0)
        return self.envelope.chunk([self._part(key, piece.text, piece, offset, piece.finish)])

    def _part(
        self, key: tuple[int, int], text: str, piece: Choice | Piece, offset: int, finish: str | None
    ) -> dict[str, Any]:
        first = key not in self._choices
        self._choices.setdefault(key, Choice())
        self._length[key] = offset + len(text)
        return {
            "index": key[0] * self.body.n + key[1],
            **self._form.part(text, first),
            "logprobs": self._logs(piece, offset),
            "finish_reason": FINISH[finish],
        }

    def _logs(self, piece: Choice | Piece, offset: int) -> dict[str, Any] | None:
        if self._alternatives is None or self._text is None:
            return None
        return self._form.logprobs(self._text.show, piece, self._alternatives, offset)

    def _with_prompt(self, begun: Begun, request: int, prompt: Sequence[int], text: Choice) -> Choice:
        if not self._echo:
            return text
        both = Choice(finish=text.finish)
        if begun.scored:
            both.add(begun.scored[request])
        else:
            both.text = "" if self._text is None else self._text.decode(prompt)
        both.text += text.text
        both.tokens += text.tokens
        both.logps += text.logps
        both.ranked += text.ranked
        return both
