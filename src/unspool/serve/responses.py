"""What the server answers, as its OpenAPI document tells it."""

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

Finish = Literal["stop", "length"]


class Told(BaseModel):
    """Nothing is told that is not written here."""

    model_config = ConfigDict(extra="forbid")


class Usage(Told):
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionLogprobs(Told):
    """Lists side by side, one entry for each token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    """None: the first token of a prompt, which nothing stands before."""
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Told):
    """One text."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish | None


class Completion(Told):
    """Of /v1/completions; the parts of a stream are of the same kind."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class TokenLogprob(Told):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChosenLogprob(TokenLogprob):
    """The same of a token that was chosen, with those that were most probable in its place."""

    top_logprobs: list[TokenLogprob]


class ChatLogprobs(Told):
    """Of every token of an answer."""

    content: list[ChosenLogprob]
    refusal: None


class AnswerMessage(Told):
    """What the model says."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Told):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish | None


class ChatCompletion(Told):
    """Of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class ModelFacts(Told):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["unspool"] = "unspool"
    max_model_len: int | None
    """Tokens of its context; None: any number."""


class ModelList(Told):
    """All models that are served."""

    object: Literal["list"] = "list"
    data: list[ModelFacts]


class Tokens(Told):
    """Of /tokenize."""

    count: int
    max_model_len: int | None
    tokens: list[int]


class Health(Told):
    """Of /health, where all is well."""

    status: Literal["ok"] = "ok"
    models: list[str]


class ErrorFacts(Told):
    """What was wrong."""

    message: str
    type: str
    param: str | None = Field(description="the field that it is about")
    code: str | None


class Refusal(Told):
    """Whatever is answered besides 200."""

    error: ErrorFacts


# Pieces of text as OpenAI's objects: completions and chats, whole and in chunks.


FINISH = {"eos": "stop", "stop": "stop", "loop": "stop", "length": "length", None: None}
"""OpenAI's word for why a text ended."""


@dataclass
class Choice:
    """One text as it grows."""

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
    def mean(self) -> float:
        """The mean log-probability of its tokens, which best_of ranks by."""
        return math.fsum(self.logps) / max(1, len(self.logps))


@dataclass(frozen=True)
class Form:
    """How one endpoint writes its answers."""

    kind: str
    chunk_kind: str
    prefix: str
    whole: Callable[[Choice], dict[str, Any]]
    part: Callable[[str, bool], dict[str, Any]]
    """Of new text, and whether it is the first of its choice."""
    logprobs: Callable[[TokenizerLike, Choice | Piece, int, Sequence[int]], dict[str, Any]]
    """Of the tokenizer, a piece, how many alternatives are told, and where in the text its tokens begin."""


class Envelope:
    """What all chunks of one answer have in common."""

    def __init__(self, form: Form, model: str) -> None:
        self._form = form
        self._same = {"id": form.prefix + secrets.token_hex(12), "created": int(time.time()), "model": model}

    def whole(self, choices: Sequence[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        """A finished answer."""
        return {**self._same, "object": self._form.kind, "choices": list(choices), "usage": usage}

    def chunk(self, choices: Sequence[dict[str, Any]], usage: dict[str, int] | None = None) -> dict[str, Any]:
        """A part of one."""
        said = {**self._same, "object": self._form.chunk_kind, "choices": list(choices)}
        return said if usage is None else {**said, "usage": usage}


def usage(prompts: Iterable[Sequence[int]], new: int) -> dict[str, int]:
    """How many tokens were read and written."""
    read = sum(map(len, prompts))
    return {"prompt_tokens": read, "completion_tokens": new, "total_tokens": read + new}


def completion_logprobs(
    text: TokenizerLike, piece: Choice | Piece, count: int, offsets: Sequence[int]
) -> dict[str, Any]:
    """The old form: lists side by side, the most probable tokens as a mapping."""
    texts, tops = [text.show(token) for token in piece.tokens], []
    for place, (shown, logp) in enumerate(zip(texts, piece.logps, strict=True)):
        ranked = piece.ranked[place].model[:count] if place < len(piece.ranked) else ()
        top: dict[str, float | None] = {}
        for token, value in ranked:
            top.setdefault(text.show(token), _number(value))
        tops.append(None if math.isnan(logp) else {**top, shown: top.get(shown, _number(logp))})
    return {
        "tokens": texts,
        "token_logprobs": [_number(logp) for logp in piece.logps],
        "top_logprobs": tops,
        "text_offset": list(offsets),
    }


def chat_logprobs(text: TokenizerLike, piece: Choice | Piece, count: int) -> dict[str, Any]:
    """The new form: an object for every token."""

    def entry(token: int, logp: float) -> dict[str, Any]:
        shown, adds = text.show(token), text.piece(token)
        written = shown.encode("utf-8", "replace") if adds is None else adds
        return {"token": shown, "logprob": _number(logp), "bytes": list(written)}

    content = []
    for place, (token, logp) in enumerate(zip(piece.tokens, piece.logps, strict=True)):
        ranked = piece.ranked[place].model[:count] if place < len(piece.ranked) else ()
        content.append({**entry(token, logp), "top_logprobs": [entry(*each) for each in ranked]})
    return {"content": content, "refusal": None}


def _number(logp: float) -> float | None:
    """JSON has neither NaN nor −∞."""
    return None if math.isnan(logp) else max(logp, -9999.0)


COMPLETION = Form(
    "text_completion",
    "text_completion",
    "cmpl-",
    lambda choice: {"text": choice.text},
    lambda text, first: {"text": text},  # noqa: ARG005
    completion_logprobs,
)
CHAT = Form(
    "chat.completion",
    "chat.completion.chunk",
    "chatcmpl-",
    lambda choice: {"message": {"role": "assistant", "content": choice.text, "refusal": None}},
    lambda text, first: {"delta": {"role": "assistant", "content": text} if first else {"content": text}},
    lambda text, piece, count, offsets: chat_logprobs(text, piece, count),  # noqa: ARG005
)


# Where in a text each of its tokens begins: behind all characters that were whole before it.


class TokenOffsets:
    """Counts the characters of one text as its tokens come."""

    def __init__(self, text: TokenizerLike, after: int | None = None) -> None:
        self._watch = text.detokenizer(after=after)

    def __call__(self, tokens: Sequence[int]) -> list[int]:
        """Where the next tokens begin."""
        found = []
        for token in tokens:
            found.append(len(self._watch.text))
            self._watch = self._watch.push(token)
        return found
