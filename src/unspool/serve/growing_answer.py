"""One request's answer as it grows: pieces become chunks of a stream, or all of it one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool.decode.job import Job
from unspool.decode.output import Piece
from unspool.protocols import Text
from unspool.serve.answers import FINISH, Choice, Envelope, Form, usage
from unspool.serve.generation import Begun
from unspool.serve.request_fields import DecodingFields
from unspool.serve.token_offsets import TokenOffsets


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
        self._offsets: dict[tuple[int, int], TokenOffsets] = {}
        self._job: Job | None = None

    def begin(self, job: Job) -> None:
        """All has been checked, and the prompts are known."""
        self._job = job

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
                    "logprobs": self._logs((request, sample), shown),
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
                found.append(self._part((request, sample), text.text, text, None))  # noqa: PERF401
        return [self.envelope.chunk([each]) for each in found]

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """One piece as a chunk."""
        key = (piece.request, piece.sample)
        return self.envelope.chunk([self._part(key, piece.text, piece, piece.finish)])

    def _part(
        self, key: tuple[int, int], text: str, piece: Choice | Piece, finish: str | None
    ) -> dict[str, Any]:
        first = key not in self._choices
        self._choices.setdefault(key, Choice())
        return {
            "index": key[0] * self.body.n + key[1],
            **self._form.part(text, first),
            "logprobs": self._logs(key, piece),
            "finish_reason": FINISH[finish],
        }

    def _logs(self, key: tuple[int, int], piece: Choice | Piece) -> dict[str, Any] | None:
        if self._alternatives is None or self._text is None:
            return None
        if key not in self._offsets:
            self._offsets[key] = self._begun(self._text, key[0])
        return self._form.logprobs(self._text, piece, self._alternatives, self._offsets[key](piece.tokens))

    def _begun(self, text: Text, request: int) -> TokenOffsets:
        """What an echo repeats is a part of the text; otherwise the text begins behind the prompt."""
        if self._echo or self._job is None or self._job.answers:
            return TokenOffsets(text)
        return TokenOffsets(text, after=self._job.prompts[request][-1])

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
