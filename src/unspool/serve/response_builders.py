"""Builders of the responses of completions and chats, or of their streamed chunks, from pieces of text."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from unspool.decode.output import Piece
from unspool.interfaces import Detokenizer, TokenizerLike
from unspool.serve.api_error import ApiError, error_record
from unspool.serve.generation import StartedGeneration
from unspool.serve.metrics import RequestRecord
from unspool.serve.requests import DecodingFields
from unspool.tokenization.tool_calls import CallDelta, MessageDelta, MessageParser

FINISH_REASONS = {"eos": "stop", "stop": "stop", "loop": "stop", "length": "length", None: None}
"""Our finish reason → OpenAI's."""


Key = tuple[int, int]
"""The number of a prompt, and of one of its texts."""


def join_pieces(pieces: Sequence[Piece]) -> Piece:
    """One piece with the text and the tokens of several."""
    return replace(
        pieces[-1],
        text="".join(piece.text for piece in pieces),
        tokens=tuple(token for piece in pieces for token in piece.tokens),
        logps=tuple(logp for piece in pieces for logp in piece.logps),
        ranked=tuple(ranked for piece in pieces for ranked in piece.ranked),
    )


class CompletionBuilder:
    """Builds a response of /v1/completions, or its chunks, from pieces of text."""

    names: ClassVar = ("text_completion", "text_completion", "cmpl-")
    """`object` of a response and of a chunk, and the prefix of their id."""
    end: ClassVar = b"data: [DONE]\n\n"

    def __init__(
        self,
        body: DecodingFields,
        tokenizer: TokenizerLike | None,
        alternatives: int | None,
        *,
        echo: bool = False,
        show_prompt_logprobs: bool = False,
    ) -> None:
        self.body, self.new_tokens = body, 0
        self._show_prompt_logprobs = show_prompt_logprobs
        self.record = RequestRecord()
        self._tokenizer, self._alternatives, self._echo = tokenizer, alternatives, echo
        identity = self.names[2] + secrets.token_hex(12)
        self._shared = {"id": identity, "created": int(time.time()), "model": body.model}
        self._choices: dict[Key, list[Piece]] = {}
        self._detokenizers: dict[Key, Detokenizer] = {}

    def start(self, started: StartedGeneration) -> None:
        self._job, self._scored = started.job, started.scored

    def add(self, piece: Piece) -> None:
        """Collect a piece for the complete response."""
        self._choices.setdefault((piece.request, piece.sample), []).append(piece)

    def response(self) -> dict[str, Any]:
        choices = []
        for request in range(len(self._job.prompts)):
            texts = [join_pieces(self._choices[key]) for key in sorted(self._choices) if key[0] == request]
            if len(texts) > self.body.n:
                texts = sorted(texts, key=lambda text: -_mean(text.logps))[: self.body.n]
            for sample, text in enumerate(texts or [Piece("", (), request, 0, "length")] * self.body.n):
                whole = join_pieces([*self._prompt(request), text])
                choices.append(self._record((request, sample), whole, self._whole((request, sample), whole)))
        return {**self._shared, "object": self.names[0], "choices": choices, "usage": self.usage()}

    def opening(self) -> Iterator[dict[str, Any]]:
        """The first chunks of a stream: they repeat the prompts, if the request asks for an echo."""
        for request in range(len(self._job.prompts)) if self._echo else ():
            for sample in range(self.body.n):
                for piece in self._prompt(request):
                    yield from self._chunks((request, sample), piece)

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        yield from self._chunks((piece.request, piece.sample), piece)

    def closing(self) -> Iterator[dict[str, Any]]:
        """The last chunk, with the token counts, if the request asks for them."""
        if self.body.stream_options is not None and self.body.stream_options.include_usage:
            yield {**self._shared, "object": self.names[1], "choices": [], "usage": self.usage()}

    def failed(self, error: ApiError) -> dict[str, Any]:
        """The last event of a stream that fails."""
        return dict(error_record(error))

    def usage(self) -> dict[str, Any]:
        prompt = sum(map(len, self._job.prompts))
        total = prompt + self.new_tokens
        return {"prompt_tokens": prompt, "completion_tokens": self.new_tokens, "total_tokens": total}

    def _whole(self, key: Key, text: Piece) -> dict[str, Any]:
        if not self._show_prompt_logprobs or self._tokenizer is None:
            return {"text": text.text}
        return {"text": text.text, "prompt_logprobs": _prompt_logprobs(self._tokenizer, self._scored[key[0]])}

    def _delta(self, key: Key, piece: Piece) -> dict[str, Any] | None:  # noqa: ARG002
        """The text of a choice of a chunk; None if there is nothing to send yet."""
        return {"text": piece.text}

    def _finish_reason(self, key: Key, piece: Piece) -> str | None:  # noqa: ARG002
        return FINISH_REASONS[piece.finish_reason]

    def _logprobs(
        self, tokenizer: TokenizerLike, piece: Piece, count: int, offsets: list[int]
    ) -> dict[str, Any]:
        """Parallel lists, one entry per token, with `count` alternatives as a mapping."""
        texts, tops = [tokenizer.show(token) for token in piece.tokens], []
        for place, (shown, logp) in enumerate(zip(texts, piece.logps, strict=True)):
            top: dict[str, float | None] = {}
            for token, value in _ranked(piece, place, count):
                top.setdefault(tokenizer.show(token), _number(value))
            tops.append(None if math.isnan(logp) else {**top, shown: top.get(shown, _number(logp))})
        logprobs = [_number(logp) for logp in piece.logps]
        return {"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}

    def _chunks(self, key: Key, piece: Piece) -> Iterator[dict[str, Any]]:
        delta = self._delta(key, piece)
        self._choices.setdefault(key, [])
        if delta is not None:
            choices = [self._record(key, piece, delta)]
            yield {**self._shared, "object": self.names[1], "choices": choices}

    def _record(self, key: Key, piece: Piece, text: dict[str, Any]) -> dict[str, Any]:
        logprobs = None
        if self._alternatives is not None and self._tokenizer is not None:
            offsets = self._offsets(self._tokenizer, key, piece.tokens)
            logprobs = self._logprobs(self._tokenizer, piece, self._alternatives, offsets)
        index, finish_reason = key[0] * self.body.n + key[1], self._finish_reason(key, piece)
        return {"index": index, **text, "logprobs": logprobs, "finish_reason": finish_reason}

    def _offsets(self, tokenizer: TokenizerLike, key: Key, tokens: Sequence[int]) -> list[int]:
        """The number of complete characters before each token, from the start of an echoed prompt."""
        if key not in self._detokenizers:
            begins = self._echo or self._job.is_encoder_decoder
            after = None if begins else self._job.prompts[key[0]][-1]
            self._detokenizers[key] = tokenizer.detokenizer(after=after)
        offsets = []
        for token in tokens:
            offsets.append(len(self._detokenizers[key].text))
            self._detokenizers[key] = self._detokenizers[key].push(token)
        return offsets

    def _prompt(self, request: int) -> list[Piece]:
        """The echoed prompt; empty without an echo."""
        if not self._echo:
            return []
        if self._scored:
            return [self._scored[request]]
        text = "" if self._tokenizer is None else self._tokenizer.decode(self._job.prompts[request])
        return [Piece(text, (), request, 0, None)]


class ChatBuilder(CompletionBuilder):
    """The same for /v1/chat/completions."""

    names: ClassVar = ("chat.completion", "chat.completion.chunk", "chatcmpl-")

    def start(self, started: StartedGeneration) -> None:
        super().start(started)
        self._reply, self._parsers = started.reply, dict[Key, MessageParser]()

    def parse(self, key: Key, text: str, is_last: bool) -> MessageDelta:
        """The parts of a reply that this text completes."""
        if key not in self._parsers:
            reply = self._reply
            self._parsers[key] = MessageParser(
                reply.format, thinks=reply.thinks, is_thinking=reply.is_thinking
            )
        return self._parsers[key].feed(text, is_last)

    def _whole(self, key: Key, text: Piece) -> dict[str, Any]:
        parts = self.parse(key, text.text, is_last=True)
        message: dict[str, Any] = {"role": "assistant", "content": parts.content, "refusal": None}
        if parts.reasoning:
            message["reasoning_content"] = parts.reasoning
        if parts.calls:
            message |= {"content": parts.content or None, "tool_calls": list(map(_tool_call, parts.calls))}
        return {"message": message}

    def _delta(self, key: Key, piece: Piece) -> dict[str, Any] | None:
        parts = self.parse(key, piece.text, is_last=piece.finish_reason is not None)
        delta: dict[str, Any] = {} if key in self._choices else {"role": "assistant", "content": ""}
        if parts.content:
            delta["content"] = parts.content
        if parts.reasoning:
            delta["reasoning_content"] = parts.reasoning
        if parts.calls:
            delta["tool_calls"] = [{"index": call.index, **_tool_call(call)} for call in parts.calls]
        is_needed = delta or piece.finish_reason or self._alternatives is not None
        return {"delta": delta} if is_needed else None

    def _finish_reason(self, key: Key, piece: Piece) -> str | None:
        reason = FINISH_REASONS[piece.finish_reason]
        return "tool_calls" if reason == "stop" and self._parsers[key].calls else reason

    def _logprobs(
        self,
        tokenizer: TokenizerLike,
        piece: Piece,
        count: int,
        offsets: list[int],  # noqa: ARG002
    ) -> dict[str, Any]:
        """An object per token, with `count` alternatives."""

        def entry(token: int, logp: float) -> dict[str, Any]:
            shown, adds = tokenizer.show(token), tokenizer.piece(token)
            written = shown.encode("utf-8", "replace") if adds is None else adds
            return {"token": shown, "logprob": _number(logp), "bytes": list(written)}

        content = [
            {**entry(token, logp), "top_logprobs": [entry(*pair) for pair in _ranked(piece, place, count)]}
            for place, (token, logp) in enumerate(zip(piece.tokens, piece.logps, strict=True))
        ]
        return {"content": content, "refusal": None}


def _ranked(piece: Piece, place: int, count: int) -> Sequence[tuple[int, float]]:
    return piece.ranked[place].model[:count] if place < len(piece.ranked) else ()


def _mean(logps: Sequence[float]) -> float:
    return math.fsum(logps) / max(1, len(logps))


def _number(logp: float) -> float | None:
    """A log-probability as JSON, which does not have NaN and −∞."""
    return None if math.isnan(logp) else max(logp, -9999.0)


def _tool_call(call: CallDelta) -> dict[str, Any]:
    """A tool call, or the next part of one."""
    if call.name is None:
        return {"function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _prompt_logprobs(tokenizer: TokenizerLike, scored: Piece) -> list[dict[str, Any] | None]:
    """vLLM's prompt_logprobs: for each token after the first, the token and its best alternatives."""
    records: list[dict[str, Any] | None] = [None]
    for token, logp, ranked in list(zip(scored.tokens, scored.logps, scored.ranked, strict=True))[1:]:
        best: dict[int, tuple[float, int | None]] = {
            other: (value, rank) for rank, (other, value) in enumerate(ranked.model, start=1)
        }
        best.setdefault(token, (logp, None))
        records.append(
            {
                str(other): {"logprob": _number(value), "rank": rank, "decoded_token": tokenizer.show(other)}
                for other, (value, rank) in best.items()
            }
        )
    return records
