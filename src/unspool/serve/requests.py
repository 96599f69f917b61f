"""Request bodies: OpenAI's fields, this server's additions, and the decoder that they describe."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import unspool as us
from unspool.decode.search import SEARCHES
from unspool.interfaces import Decoder, Transform

TokenId = Annotated[int, Field(ge=0, le=10_000_000)]
Ids = Annotated[list[TokenId], Field(min_length=1, max_length=1_000_000)]
Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class RequestModel(BaseModel):
    """A request body that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


class StreamOptions(RequestModel):
    """Additions to a stream."""

    include_usage: bool = False
    """Whether a last chunk contains the token counts."""


class JsonSchema(RequestModel):
    """A JSON schema that the text must match."""

    name: str = ""
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(RequestModel):
    """Any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


class DecodingFields(RequestModel):
    """The fields that completions and chats share."""

    model: str = Field(max_length=1000)
    n: int = Field(1, ge=1, le=256)
    stream: bool = False
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    seed: Int64 | None = None
    temperature: float = Field(1.0, ge=0, le=100)
    """0 is greedy decoding."""
    top_p: float = Field(1.0, gt=0, le=1)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=1024)] | None = None
    response_format: ResponseFormat | None = None
    user: str | None = Field(None, max_length=1000)
    top_k: int | None = Field(None, ge=0, le=10_000_000)
    """0 keeps all tokens."""
    min_p: float = Field(0.0, ge=0, le=1)
    typical_p: float = Field(1.0, gt=0, le=1)
    repetition_penalty: float = Field(1.0, gt=0, le=100)
    num_beams: int = Field(1, ge=1, le=10_000)
    """Above 1, beam search with the other fields as transforms."""
    decoder: str | None = Field(None, max_length=4000)
    """Any decoder, written as in Python; replaces all sampling fields."""
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] | None = None
    stop_loops: bool = False
    """End a text that repeats itself in a loop."""
    stop_approximate_loops: bool = False
    """End a text also if it repeats itself approximately."""


class CompletionRequest(DecodingFields):
    """The body of /v1/completions. A prompt may contain special tokens; messages of a chat may not."""

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


class Message(RequestModel):
    """One message of a chat."""

    role: str = Field(max_length=100)
    content: str
    name: str | None = Field(None, max_length=1000)


class ChatRequest(DecodingFields):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=1_000_000)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)


class TokenizeRequest(RequestModel):
    """The body of /tokenize."""

    model: str | None = Field(None, max_length=1000)
    prompt: str


# ---- the decoder of a request


TRANSFORMS: dict[str, tuple[Callable[[Any], Transform], Sequence[Any]]] = {
    "logit_bias": (us.LogitBias, (None, {})),
    "repetition_penalty": (us.RepetitionPenalty, (1,)),
    "frequency_penalty": (us.FrequencyPenalty, (0,)),
    "presence_penalty": (us.PresencePenalty, (0,)),
    "temperature": (us.Temperature, (0, 1)),
    "top_k": (us.TopK, (None, 0)),
    "typical_p": (us.Typical, (1,)),
    "top_p": (us.TopP, (1,)),
    "min_p": (us.MinP, (0,)),
}
"""Field → its transform, and the values without an effect; transforms are applied in this order."""


def decoder_of(fields: DecodingFields) -> Decoder:
    """The decoder that the fields describe: biases and penalties, temperature, truncation, grammar."""
    grammar = _grammar(fields.response_format)
    if fields.decoder is not None:
        others = [name for name in (*TRANSFORMS, "num_beams") if name in fields.model_fields_set]
        if others:
            raise ValueError(f"decoder replaces {others[0]}: give one of them")
        return _with_grammar(us.parse(fields.decoder), grammar)
    rules = [
        make(value)
        for name, (make, neutral) in TRANSFORMS.items()
        if (value := getattr(fields, name)) not in neutral
    ]
    if fields.num_beams > 1:
        return us.Beam(fields.num_beams, *rules, *grammar)
    return us.Greedy(*rules, *grammar) if fields.temperature == 0 else us.Sample(*rules, *grammar)


def _grammar(format_: ResponseFormat | None) -> list[Transform]:
    if format_ is None or format_.type == "text":
        return []
    if format_.type == "json_object":
        return [us.Grammar(json_schema={"type": "object"})]
    if format_.json_schema is None:
        raise ValueError('response_format of type "json_schema" needs json_schema')
    return [us.Grammar(json_schema=format_.json_schema.schema_)]


def _with_grammar(decoder: Any, grammar: list[Transform]) -> Decoder:
    """The decoder with the grammar as its last transform."""
    result: Decoder = copy.copy(decoder)
    if grammar and hasattr(decoder, "transforms"):
        object.__setattr__(result, "transforms", (*decoder.transforms, *grammar))
    elif grammar and hasattr(decoder, "options"):
        options = replace(decoder.options, transforms=(*decoder.options.transforms, *grammar))
        object.__setattr__(result, "options", options)
    elif grammar:
        raise ValueError(f"response_format needs Greedy, Sample or a beam, not {decoder!r:.80}")
    return result


# ---- limits


@dataclass(frozen=True)
class Limits:
    """Limits of a request, checked before memory is allocated."""

    body_bytes: int = 4_000_000
    rows: int = 256
    """Texts per request: prompts × n (or best_of)."""
    width: int = 64
    """Rows per text: the width of a beam, the samples of MBR."""
    new_tokens: int = 16_384
    prompt_tokens: int = 32_768
    """Tokens per prompt, if the context of the model is larger."""
    seconds: float = 600.0
    """Seconds per request."""


def check_decoder(decoder: Any, limits: Limits) -> None:
    """Raise ValueError if a decoder, or one inside it, uses more rows than allowed."""
    for value in _integers(decoder):
        if value > limits.width:
            raise ValueError(
                f"{decoder!r:.80} uses {value} rows per text, but this server allows {limits.width}"
            )


def _integers(decoder: Any) -> list[int]:
    """The integer settings of a decoder, which multiply its rows."""
    found: list[int] = []
    for field in fields(decoder):
        value = getattr(decoder, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
        elif type(value) in SEARCHES.values() or field.name == "options":
            found += _integers(value)
    return found
