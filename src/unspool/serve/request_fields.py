"""What a request may say, as OpenAI calls it, and what only this server understands; unknown fields fail."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TokenId = Annotated[int, Field(ge=0, le=10_000_000)]
Ids = Annotated[list[TokenId], Field(min_length=1, max_length=1_000_000)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class Fields(BaseModel):
    """No field that nobody knows."""

    model_config = ConfigDict(extra="forbid")


class StreamOptions(Fields):
    """What a stream tells besides its text."""

    include_usage: bool = False
    """A last chunk says how many tokens there were."""


class JsonSchema(Fields):
    """A schema that the text is held to."""

    name: str = ""
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Fields):
    """Any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class DecodingFields(Fields):
    """How text is decoded: what completions and chats have in common."""

    model: str = Field(max_length=1000)
    n: int = Field(1, ge=1, le=256)
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    seed: Whole | None = None
    temperature: float = Field(1.0, ge=0, le=100)
    """0 is greedy search."""
    top_p: float = Field(1.0, gt=0, le=1)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: Annotated[dict[str, float], Field(max_length=1024)] | None = None
    response_format: ResponseFormat | None = None
    user: str | None = Field(None, max_length=1000)
    top_k: int | None = Field(None, ge=0, le=10_000_000)
    """0 keeps all."""
    min_p: float = Field(0.0, ge=0, le=1)
    typical_p: float = Field(1.0, gt=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=100)
    num_beams: int = Field(1, ge=1, le=10_000)
    """Above 1: beam search, with the other fields as transforms."""
    decoder: str | None = Field(None, max_length=4000)
    """Any decoder, written as in Python, in place of all fields that say how a token is chosen."""
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    stop_loops: bool = False
    """End a text that goes round in circles."""
    stop_approximate_loops: bool = False
    """End it also if it only nearly repeats itself."""


class CompletionRequest(DecodingFields):
    """What /v1/completions takes. A prompt may spell special tokens; messages of a chat may not."""

    prompt: (
        Annotated[str, Field(min_length=1)]
        | Ids
        | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=256)]
        | Annotated[list[Ids], Field(min_length=1, max_length=256)]
    )
    max_tokens: int = Field(16, ge=0, le=1_000_000)
    best_of: int | None = Field(None, ge=1, le=256)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=20)
    suffix: None = None


class Message(Fields):
    """One message of a chat."""

    role: str = Field(max_length=100)
    content: str
    name: str | None = Field(None, max_length=1000)


class ChatRequest(DecodingFields):
    """What /v1/chat/completions takes."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)


class TokenizeRequest(Fields):
    """What /tokenize takes."""

    model: str | None = Field(None, max_length=1000)
    prompt: str
