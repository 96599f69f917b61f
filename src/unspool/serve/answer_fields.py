"""What the server answers, as its OpenAPI document tells it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

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
