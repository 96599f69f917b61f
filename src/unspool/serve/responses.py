"""Response bodies: OpenAI's objects as pydantic models, and builders that make them from pieces."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from unspool.decode.hypothesis import Job, Ranked
from unspool.decode.output import Piece
from unspool.interfaces import Detokenizer, TokenizerLike
from unspool.serve.requests import DecodingFields

OpenAIFinishReason = Literal["stop", "length"]


class ResponseModel(BaseModel):
    """A response body without undocumented fields."""

    model_config = ConfigDict(extra="forbid")


class Usage(ResponseModel):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionLogprobs(ResponseModel):
    """Parallel lists with one entry per token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    """None for the first token of an echoed prompt."""
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(ResponseModel):
    """One generated text."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: OpenAIFinishReason | None


class Generated(ResponseModel):
    """The fields that completions and chats share."""

    id: str
    created: int
    model: str
    usage: Usage


class Completion(Generated):
    """The response of /v1/completions; the chunks of a stream look the same."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class TokenLogprob(ResponseModel):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(TokenLogprob):
    """A generated token with the most probable alternatives."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(ResponseModel):
    """Log-probabilities of all tokens of a message."""

    content: list[ChosenLogprob]
    refusal: None


class AssistantMessage(ResponseModel):
    """The message of the model."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(ResponseModel):
    """One message."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: OpenAIFinishReason | None


class ChatCompletion(Generated):
    """The response of /v1/chat/completions."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class ModelCard(ResponseModel):
    """A served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["unspool"] = "unspool"
    max_model_len: int | None
    """Context length; None if it is unlimited."""


class ModelList(ResponseModel):
    """The response of /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Tokens(ResponseModel):
    """The response of /tokenize."""

    count: int
    max_model_len: int | None
    tokens: list[int]


class Health(ResponseModel):
    """The response of /health."""

    status: Literal["ok"] = "ok"
    models: list[str]


class ErrorDetail(ResponseModel):
    """The description of an error."""

    message: str
    type: str
    param: str | None = Field(description="the field that is wrong")
    code: str | None


class ErrorResponse(ResponseModel):
    """Every response with another status than 200."""

    error: ErrorDetail


# ---- building responses


FINISH_REASONS = {"eos": "stop", "stop": "stop", "loop": "stop", "length": "length", None: None}
"""Our finish reason → OpenAI's."""


@dataclass
class Choice:
    """One text, collected from pieces."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    ranked: list[Ranked] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, piece: Choice | Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.tokens += piece.tokens
        self.logps += piece.logps
        self.ranked += piece.ranked
        self.finish_reason = piece.finish_reason or self.finish_reason

    @property
    def mean_logp(self) -> float:
        """The mean log-probability of its tokens; best_of ranks by it."""
        return math.fsum(self.logps) / max(1, len(self.logps))


@dataclass(frozen=True)
class StartedGeneration:
    """A generation whose arguments were checked, before its first token."""

    job: Job
    scored: Sequence[Piece] = ()
    """The scored prompts, if requested; log p of the first token is NaN."""


class CompletionBuilder:
    """Builds a response of /v1/completions, or its chunks, from pieces of text."""

    names: ClassVar = ("text_completion", "text_completion", "cmpl-")
    """`object` of a response and of a chunk, and the prefix of their id."""

    def __init__(
        self,
        body: DecodingFields,
        tokenizer: TokenizerLike | None,
        alternatives: int | None,
        *,
        echo: bool = False,
    ) -> None:
        self.body, self.new_tokens = body, 0
        self._tokenizer, self._alternatives, self._echo = tokenizer, alternatives, echo
        identity = self.names[2] + secrets.token_hex(12)
        self._shared = {"id": identity, "created": int(time.time()), "model": body.model}
        self._choices: dict[tuple[int, int], Choice] = {}
        self._detokenizers: dict[tuple[int, int], Detokenizer] = {}

    def start(self, started: StartedGeneration) -> None:
        """Set the prompts, before the first piece."""
        self._job, self._scored = started.job, started.scored

    def add(self, piece: Piece) -> None:
        """Collect a piece for the complete response."""
        self._choices.setdefault((piece.request, piece.sample), Choice()).add(piece)

    def response(self) -> dict[str, Any]:
        """The complete response."""
        choices = []
        for request in range(len(self._job.prompts)):
            texts = [self._choices[key] for key in sorted(self._choices) if key[0] == request]
            if len(texts) > self.body.n:
                texts = sorted(texts, key=lambda text: -text.mean_logp)[: self.body.n]
            for sample, text in enumerate(texts or [Choice(finish_reason="length")] * self.body.n):
                whole = self._prompt(request)
                whole.add(text)
                choices.append(self._record((request, sample), whole, self._whole(whole.text)))
        return {**self._shared, "object": self.names[0], "choices": choices, "usage": self.usage()}

    def echo_chunks(self) -> Iterator[dict[str, Any]]:
        """Chunks that repeat the prompts, if the request asks for an echo."""
        for request in range(len(self._job.prompts)) if self._echo else ():
            for sample in range(self.body.n):
                yield self._chunk((request, sample), self._prompt(request))

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """The chunk of one piece."""
        return self._chunk((piece.request, piece.sample), piece)

    def usage_chunk(self) -> dict[str, Any]:
        """The last chunk, with the token counts."""
        return {**self._shared, "object": self.names[1], "choices": [], "usage": self.usage()}

    def usage(self) -> dict[str, int]:
        """The token counts."""
        prompt = sum(map(len, self._job.prompts))
        total = prompt + self.new_tokens
        return {"prompt_tokens": prompt, "completion_tokens": self.new_tokens, "total_tokens": total}

    def _whole(self, text: str) -> dict[str, Any]:
        """The text of a choice of a complete response."""
        return {"text": text}

    def _delta(self, text: str, is_first: bool) -> dict[str, Any]:  # noqa: ARG002
        """The text of a choice of a chunk."""
        return {"text": text}

    def _logprobs(
        self, tokenizer: TokenizerLike, piece: Choice | Piece, count: int, offsets: list[int]
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

    def _chunk(self, key: tuple[int, int], piece: Choice | Piece) -> dict[str, Any]:
        delta = self._delta(piece.text, key not in self._choices)
        self._choices.setdefault(key, Choice())
        return {**self._shared, "object": self.names[1], "choices": [self._record(key, piece, delta)]}

    def _record(self, key: tuple[int, int], piece: Choice | Piece, text: dict[str, Any]) -> dict[str, Any]:
        logprobs = None
        if self._alternatives is not None and self._tokenizer is not None:
            offsets = self._offsets(self._tokenizer, key, piece.tokens)
            logprobs = self._logprobs(self._tokenizer, piece, self._alternatives, offsets)
        index, finish_reason = key[0] * self.body.n + key[1], FINISH_REASONS[piece.finish_reason]
        return {"index": index, **text, "logprobs": logprobs, "finish_reason": finish_reason}

    def _offsets(self, tokenizer: TokenizerLike, key: tuple[int, int], tokens: Sequence[int]) -> list[int]:
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

    def _prompt(self, request: int) -> Choice:
        """The echoed prompt; empty without an echo."""
        prompt = Choice()
        if self._echo and self._scored:
            prompt.add(self._scored[request])
        elif self._echo and self._tokenizer is not None:
            prompt.text = self._tokenizer.decode(self._job.prompts[request])
        return prompt


class ChatBuilder(CompletionBuilder):
    """The same for /v1/chat/completions."""

    names: ClassVar = ("chat.completion", "chat.completion.chunk", "chatcmpl-")

    def _whole(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _delta(self, text: str, is_first: bool) -> dict[str, Any]:
        return {"delta": {"role": "assistant", "content": text} if is_first else {"content": text}}

    def _logprobs(
        self,
        tokenizer: TokenizerLike,
        piece: Choice | Piece,
        count: int,
        offsets: list[int],  # noqa: ARG002
    ) -> dict[str, Any]:
        """An object per token, with `count` alternatives."""

        def entry(token: int, logp: float) -> dict[str, Any]:
            shown, adds = tokenizer.show(token), tokenizer.piece(token)
            written = shown.encode("utf-8", "replace") if adds is None else adds
            return {"token": shown, "logprob": _number(logp), "bytes": list(written)}

        content = [
            {**entry(token, logp), "top_logprobs": [entry(*it) for it in _ranked(piece, place, count)]}
            for place, (token, logp) in enumerate(zip(piece.tokens, piece.logps, strict=True))
        ]
        return {"content": content, "refusal": None}


def _ranked(piece: Choice | Piece, place: int, count: int) -> Sequence[tuple[int, float]]:
    return piece.ranked[place].model[:count] if place < len(piece.ranked) else ()


def _number(logp: float) -> float | None:
    """A log-probability as JSON, which does not have NaN and −∞."""
    return None if math.isnan(logp) else max(logp, -9999.0)
