"""What a request may say, as OpenAI calls it, and what only this server understands; unknown fields fail."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import unspool as us
from unspool.decode.search import SEARCHES
from unspool.interfaces import Decoder, Transform

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


# The search that a request's fields ask for.


CHOOSING = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "num_beams", "logit_bias"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty"),
)
"""Fields that say how a token is chosen."""


def search_of(fields: DecodingFields) -> Decoder:
    """Penalties and biases first, then the temperature, then what cuts, then the grammar."""
    held = _held_to(fields.response_format)
    if fields.decoder is not None:
        beside = [name for name in CHOOSING if name in fields.model_fields_set]
        if beside:
            raise ValueError(f"decoder and {beside[0]} both say how a token is chosen: give one of them")
        return _with(us.parse(fields.decoder), held)
    rules = [*_biases(fields), *_cuts(fields), *held]
    if fields.num_beams > 1:
        return us.Beam(fields.num_beams, *rules)
    if fields.temperature == 0:
        return us.Greedy(*rules)
    return us.Sample(*rules)


def _biases(fields: DecodingFields) -> list[Transform]:
    rules: list[Transform] = []
    if fields.logit_bias:
        bias = {}
        for token, value in fields.logit_bias.items():
            if not (token.isascii() and token.isdigit()) or not -100 <= value <= 100:
                raise ValueError(
                    f"logit_bias holds {token!r:.40}: {value}, but must map token ids to numbers from −100 "
                    "to 100"
                )
            bias[int(token)] = value
        rules.append(us.LogitBias(bias))
    if fields.repetition_penalty != 1:
        rules.append(us.RepetitionPenalty(fields.repetition_penalty))
    if fields.frequency_penalty:
        rules.append(us.FrequencyPenalty(fields.frequency_penalty))
    if fields.presence_penalty:
        rules.append(us.PresencePenalty(fields.presence_penalty))
    return rules


def _cuts(fields: DecodingFields) -> list[Transform]:
    rules: list[Transform] = []
    if fields.temperature not in (0, 1):
        rules.append(us.Temperature(fields.temperature))
    if fields.top_k:
        rules.append(us.TopK(fields.top_k))
    if fields.typical_p < 1:
        rules.append(us.Typical(fields.typical_p))
    if fields.top_p < 1:
        rules.append(us.TopP(fields.top_p))
    if fields.min_p:
        rules.append(us.MinP(fields.min_p))
    return rules


def _held_to(wanted: ResponseFormat | None) -> list[Transform]:
    if wanted is None or wanted.type == "text":
        return []
    if wanted.type == "json_object":
        return [us.Grammar(json_schema={"type": "object"})]
    if wanted.json_schema is None:
        raise ValueError('response_format is of type "json_schema" and has no json_schema: give one')
    return [us.Grammar(json_schema=wanted.json_schema.schema_)]


def _with(decoder: Any, held: list[Transform]) -> Decoder:
    """The same search, whose last transform is the grammar."""
    found: Decoder = decoder
    if held and hasattr(decoder, "transforms"):
        found = replace_transforms(decoder, (*decoder.transforms, *held))
    elif held and hasattr(decoder, "options"):
        options = replace(decoder.options, transforms=(*decoder.options.transforms, *held))
        found = replace_transforms(decoder, options, "options")
    elif held:
        raise ValueError(f"{decoder!r:.80} takes no response_format: take a Greedy, a Sample or a beam")
    return found


def replace_transforms(decoder: Any, value: Any, name: str = "transforms") -> Any:
    """A copy of a frozen search that has another value there."""
    import copy

    other = copy.copy(decoder)
    object.__setattr__(other, name, value)
    return other


# What one request may ask for, checked before anything is allocated for it.


@dataclass(frozen=True)
class Limits:
    """Bounds of a request."""

    body_bytes: int = 4_000_000
    rows: int = 256
    """Texts of one request: prompts times n, or best_of."""
    width: int = 64
    """Any whole number of a search: the width of a beam, the samples of MBR."""
    new_tokens: int = 16_384
    prompt_tokens: int = 32_768
    """Of a prompt, where the model's context is no limit."""
    seconds: float = 600.0
    """From the request to its last token."""


def check_search(decoder: Any, limits: Limits) -> None:
    """Refuse a search that asks for more than is allowed, and those inside it."""
    for value in _numbers(decoder):
        if value > limits.width:
            raise ValueError(
                f"{decoder!r:.80} asks for {value}, and this server allows {limits.width} rows to a text"
            )


def _numbers(decoder: Any) -> list[int]:
    """The whole numbers of a search's own settings: what multiplies its rows."""
    found: list[int] = []
    for field in fields(decoder):
        value = getattr(decoder, field.name)
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(value)
        elif type(value) in SEARCHES.values() or field.name == "options":
            found += _numbers(value)
    return found
