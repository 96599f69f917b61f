"""Response bodies: OpenAI's objects as pydantic models, and functions that build them from pieces of text."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unspool.decode.hypothesis import Ranked
from unspool.decode.output import Piece
from unspool.interfaces import TokenizerLike

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


class Completion(ResponseModel):
    """The response of /v1/completions; the chunks of a stream look the same."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


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


class ChatCompletion(ResponseModel):
    """The response of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


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

    def add(self, piece: Piece) -> None:
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
class Endpoint:
    """The response format of an endpoint: completions or chat."""

    object_name: str
    chunk_name: str
    id_prefix: str
    choice: Callable[[Choice], dict[str, Any]]
    delta: Callable[[str, bool], dict[str, Any]]
    """From new text, and whether it is the first of its choice."""
    logprobs: Callable[[TokenizerLike, Choice | Piece, int, Sequence[int]], dict[str, Any]]
    """From the tokenizer, a piece, the number of alternatives, and the text offsets of its tokens."""


class Envelope:
    """The fields that all chunks of one response share."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        identity = endpoint.id_prefix + secrets.token_hex(12)
        self._shared = {"id": identity, "created": int(time.time()), "model": model}

    def response(self, choices: Sequence[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        """A complete response."""
        name = self._endpoint.object_name
        return {**self._shared, "object": name, "choices": list(choices), "usage": usage}

    def chunk(self, choices: Sequence[dict[str, Any]], usage: dict[str, int] | None = None) -> dict[str, Any]:
        """A chunk of a stream."""
        record = {**self._shared, "object": self._endpoint.chunk_name, "choices": list(choices)}
        return record if usage is None else {**record, "usage": usage}


def usage(prompts: Iterable[Sequence[int]], new: int) -> dict[str, int]:
    """The token counts of a request."""
    prompt = sum(map(len, prompts))
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def completion_logprobs(
    tokenizer: TokenizerLike, piece: Choice | Piece, count: int, offsets: Sequence[int]
) -> dict[str, Any]:
    """The format of /v1/completions: parallel lists, alternatives as a mapping."""
    texts, tops = [tokenizer.show(token) for token in piece.tokens], []
    for place, (shown, logp) in enumerate(zip(texts, piece.logps, strict=True)):
        ranked = piece.ranked[place].model[:count] if place < len(piece.ranked) else ()
        top: dict[str, float | None] = {}
        for token, value in ranked:
            top.setdefault(tokenizer.show(token), _number(value))
        tops.append(None if math.isnan(logp) else {**top, shown: top.get(shown, _number(logp))})
    return {
        "tokens": texts,
        "token_logprobs": [_number(logp) for logp in piece.logps],
        "top_logprobs": tops,
        "text_offset": list(offsets),
    }


def chat_logprobs(tokenizer: TokenizerLike, piece: Choice | Piece, count: int) -> dict[str, Any]:
    """The format of /v1/chat/completions: an object per token."""

    def entry(token: int, logp: float) -> dict[str, Any]:
        shown, adds = tokenizer.show(token), tokenizer.piece(token)
        written = shown.encode("utf-8", "replace") if adds is None else adds
        return {"token": shown, "logprob": _number(logp), "bytes": list(written)}

    content = []
    for place, (token, logp) in enumerate(zip(piece.tokens, piece.logps, strict=True)):
        ranked = piece.ranked[place].model[:count] if place < len(piece.ranked) else ()
        content.append({**entry(token, logp), "top_logprobs": [entry(*each) for each in ranked]})
    return {"content": content, "refusal": None}


def _number(logp: float) -> float | None:
    """A log-probability as JSON, which does not have NaN and −∞."""
    return None if math.isnan(logp) else max(logp, -9999.0)


COMPLETION = Endpoint(
    "text_completion",
    "text_completion",
    "cmpl-",
    lambda choice: {"text": choice.text},
    lambda text, first: {"text": text},  # noqa: ARG005
    completion_logprobs,
)
CHAT = Endpoint(
    "chat.completion",
    "chat.completion.chunk",
    "chatcmpl-",
    lambda choice: {"message": {"role": "assistant", "content": choice.text, "refusal": None}},
    lambda text, first: {"delta": {"role": "assistant", "content": text} if first else {"content": text}},
    lambda tokenizer, piece, count, offsets: chat_logprobs(tokenizer, piece, count),  # noqa: ARG005
)


class TokenOffsets:
    """The character offset of each token in its text: the number of complete characters before it."""

    def __init__(self, tokenizer: TokenizerLike, after: int | None = None) -> None:
        self._detokenizer = tokenizer.detokenizer(after=after)

    def __call__(self, tokens: Sequence[int]) -> list[int]:
        """The offsets of the next tokens."""
        offsets = []
        for token in tokens:
            offsets.append(len(self._detokenizer.text))
            self._detokenizer = self._detokenizer.push(token)
        return offsets
