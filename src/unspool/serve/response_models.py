"""Response bodies: OpenAI's objects as pydantic models, which document the routes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

OpenAIFinishReason = Literal["stop", "length", "tool_calls"]


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


class PromptLogprob(ResponseModel):
    """A token of the prompt, or an alternative to it, as in vLLM."""

    logprob: float
    rank: int | None
    decoded_token: str


class CompletionChoice(ResponseModel):
    """One generated text."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: OpenAIFinishReason | None
    prompt_logprobs: list[dict[str, PromptLogprob] | None] | None = None


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


class CalledFunction(ResponseModel):
    """The function of a tool call; `arguments` is JSON text."""

    name: str
    arguments: str


class MessageToolCall(ResponseModel):
    """A tool call of the model."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(ResponseModel):
    """The message of the model."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    tool_calls: list[MessageToolCall] | None = None


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


class Detokenized(ResponseModel):
    """The response of /detokenize."""

    prompt: str


class Embedding(ResponseModel):
    """The vector of one input, of length 1; base64 of float32 numbers if the request asks for it."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(ResponseModel):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(ResponseModel):
    """The response of /v1/embeddings."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage


class Health(ResponseModel):
    """The response of /health and /ready."""

    status: Literal["ok"] = "ok"


class ErrorDetail(ResponseModel):
    """The description of an error."""

    message: str
    type: str
    param: str | None = Field(description="the field that is wrong")
    code: str | None


class ErrorResponse(ResponseModel):
    """Every response with another status than 200."""

    error: ErrorDetail
