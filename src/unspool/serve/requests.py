"""Request bodies of the API: OpenAI's fields and additions to them, and messages as chat templates read them.

The additions have the names of vLLM and llama.cpp; `SYNONYMS` lists further names of the same fields. Null
means the default, and unknown fields are kept to warn about them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, Strict, model_validator
from pydantic_core import CoreSchema

from unspool.interfaces import TokenizerLike
from unspool.serve.api_error import ApiError
from unspool.tokenization.tool_calls import describe_tools, knows_tools

TokenId = Annotated[int, Field(ge=0, le=10_000_000)]
Ids = Annotated[list[TokenId], Field(min_length=1, max_length=1_000_000)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]

WITHOUT_EFFECT = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity"),
        *("cache_prompt", "id_slot", "request_id", "priority", "modalities", "prompt_cache_retention"),
        *("include", "background", "truncation", "include_reasoning", "skip_special_tokens", "encoding"),
        *("add_generation_prompt", "spaces_between_special_tokens", "cache_salt"),
    }
)
"""Fields that do not change a text here; accepted without a warning."""
MAX_NAMED = 10
"""How many ignored fields a warning names."""


class RequestModel(BaseModel):
    """A part of a request. Null means the default; unknown fields are kept in `model_extra`.

    Types are strict: true is no number, and "2" is no integer.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The schema, in which every optional field may be null."""
        reference = handler(core)
        schema = handler.resolve_ref_schema(reference)
        required = schema.get("required", ())
        schema["properties"] = {
            name: field if name in required else {"anyOf": [field, {"type": "null"}]}
            for name, field in schema.get("properties", {}).items()
        }
        return reference


class StrictModel(RequestModel):
    """A part of a request that rejects unknown fields."""

    model_config = ConfigDict(extra="forbid")


def ignored_fields(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the unknown fields of a request, except those without an effect."""
    if isinstance(value, RequestModel):
        for name in value.model_extra or ():
            if name not in WITHOUT_EFFECT:
                yield f"{path}{name}"
        for name in type(value).model_fields:
            yield from ignored_fields(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, list):
        for each in value:
            yield from ignored_fields(each, path)


def field_warning(names: list[str]) -> str:
    """The value of the header `Warning` for ignored fields (RFC 7234, code 299)."""
    shown = [re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)[:60] for name in dict.fromkeys(names)]
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    return f'299 unspool "ignored: {", ".join(shown[:MAX_NAMED])}{more}"'


TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Type of a content part → its field with the text; parts of other types are refused."""

Schema = dict[str, Any]


class ContentPart(RequestModel):
    """A part of a message. Only text is supported."""

    type: str = Field(max_length=100)
    text: str = ""
    refusal: str = ""

    def as_text(self) -> str:
        """The text of the part; ApiError for images, audio and files."""
        if self.type not in TEXT_PARTS:
            raise ApiError(
                400, f"messages: content of type {self.type!r:.60} is not supported: send text", "messages"
            )
        text: str = getattr(self, TEXT_PARTS[self.type])
        return text


class FunctionCall(RequestModel):
    """A call of a function by the model: its arguments are JSON text."""

    name: str = Field(max_length=1000)
    arguments: str | Schema = "{}"


class ToolCall(RequestModel):
    """A call in an earlier message of the model."""

    id: str = Field("", max_length=1000)
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(RequestModel):
    """One message of a chat."""

    role: str = Field(max_length=100)
    content: str | list[ContentPart] | None = None
    """May be missing in a message of the model."""
    name: str | None = Field(None, max_length=1000)
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] = Field([], max_length=256)
    tool_call_id: str | None = Field(None, max_length=1000)

    def text(self) -> str:
        """The content as one string; an assistant's refusal if there is no content."""
        if self.content is None and self.role != "assistant":
            raise ApiError(400, f"messages: a message of the {self.role!r:.60} has no content", "messages")
        if self.content is None or isinstance(self.content, str):
            return self.content or self.refusal or ""
        return "\n".join(part.as_text() for part in self.content)


class Function(RequestModel):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: Schema = Field({})
    strict: bool = False
    """Whether schema keywords that the grammar cannot enforce are refused instead of ignored."""


class Tool(RequestModel):
    """A tool: a function."""

    type: Literal["function"] = "function"
    function: Function


class ToolName(RequestModel):
    """The name of a function."""

    name: str = Field(max_length=256)


class NamedTool(RequestModel):
    """A tool_choice that names one function."""

    type: Literal["function"] = "function"
    function: ToolName


ToolChoice = Literal["none", "auto", "required"] | NamedTool


def template_messages(messages: Sequence[Message], template: str) -> list[dict[str, Any]]:
    """The messages as a chat template reads them: text, and tool calls with parsed arguments.

    A developer message is a system message, if the template does not name that role.
    """
    records = []
    for message in messages:
        role = message.role
        if role == "developer" and "developer" not in template:
            role = "system"
        record: dict[str, Any] = {"role": role, "content": message.text()}
        for name in ("name", "reasoning_content", "tool_call_id"):
            if (value := getattr(message, name)) is not None:
                record[name] = value
        if message.tool_calls:
            record["tool_calls"] = [_template_call(call) for call in message.tool_calls]
        records.append(record)
    return records


def _template_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise ApiError(400, "the arguments of a tool call are not JSON", "messages") from None
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.function.name, "arguments": arguments},
    }


def chat_prompt(
    tokenizer: TokenizerLike | None,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    variables: Mapping[str, Any] | None = None,
) -> str:
    """The prompt that the chat template renders; `Tokenizer.encode` knows which tokens are the template's."""
    if tokenizer is None:
        raise ApiError(400, "chats need a tokenizer, which this model does not have", "messages")
    template = getattr(tokenizer, "chat_template", None) or ""
    records = template_messages(messages, template)
    described = [
        {"type": "function", "function": tool.function.model_dump(exclude_none=True)} for tool in tools
    ]
    options: dict[str, Any] = {"variables": variables} if variables else {}
    if not knows_tools(template):
        records = describe_tools(records, described)
    elif described:
        options["tools"] = described
    chat: Any = tokenizer.chat  # the protocol names only the messages
    rendered: str = chat(records, **options)
    return rendered


Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Text = Annotated[str, Field(min_length=1)]
Prompts = (
    Text
    | Ids
    | Annotated[list[Text], Field(min_length=1, max_length=256)]
    | Annotated[list[Ids], Field(min_length=1, max_length=256)]
)
"""One prompt or several, each a string or token ids."""

SYNONYMS: dict[str, str] = {
    "repeat_penalty": "repetition_penalty",
    "typ_p": "typical_p",
    "n_predict": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "n_probs": "logprobs",
    "reasoning_budget": "thinking_budget",
    "thinking_budget_tokens": "thinking_budget",
    "guided_json": "structured_outputs.json",
    "guided_regex": "structured_outputs.regex",
    "guided_choice": "structured_outputs.choice",
    "guided_grammar": "structured_outputs.grammar",
    "json_schema": "structured_outputs.json",
    "grammar": "structured_outputs.grammar",
}
"""Other names of fields; "a.b" is the field b inside a."""


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


class StructuredOutputs(RequestModel):
    """The form of the text, as in vLLM: one of these."""

    json_schema: dict[str, Any] | str | None = Field(None, alias="json")
    json_object: bool = False
    regex: str | None = None
    choice: Annotated[list[Text], Field(min_length=1, max_length=10_000)] | None = None
    grammar: str | None = None
    """GBNF (llama.cpp) or Lark."""


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
    logit_bias: Annotated[dict[Annotated[TokenId, Strict(False)], Bias], Field(max_length=1024)] | None = None
    response_format: ResponseFormat | None = None
    top_k: int = Field(0, ge=-1, le=10_000_000)
    """0 and −1 keep all tokens."""
    min_p: float = Field(0.0, ge=0, le=1)
    typical_p: float = Field(1.0, gt=0, le=1)
    top_n_sigma: float = Field(-1.0, ge=-1, le=100)
    """Not above 0: off."""
    repetition_penalty: float = Field(1.0, gt=0, le=100)
    min_tokens: int = Field(0, ge=0, le=1_000_000)
    ignore_eos: bool = False
    """Ban the end tokens, as in llama.cpp."""
    bad_words: list[Stop] = Field([], max_length=1024)
    dynatemp_range: float = Field(0.0, ge=0, le=100)
    dynatemp_exponent: float = Field(1.0, gt=0, le=100)
    xtc_probability: float = Field(0.0, ge=0, le=1)
    xtc_threshold: float = Field(0.1, ge=0, le=1)
    """Above 0.5: off."""
    mirostat: Literal[0, 1, 2] = 0
    """1 and 2 are both version 2."""
    mirostat_tau: float = Field(5.0, gt=0, le=100)
    mirostat_eta: float = Field(0.1, ge=0, le=100)
    dry_multiplier: float = Field(0.0, ge=0, le=100)
    dry_base: float = Field(1.75, ge=1, le=100)
    dry_allowed_length: int = Field(2, ge=1, le=1_000_000)
    dry_penalty_last_n: int = Field(-1, ge=-1, le=1_000_000)
    """−1: the whole text; 0: off."""
    structured_outputs: StructuredOutputs | None = None
    num_beams: int = Field(1, ge=1, le=10_000)
    """Above 1, beam search with the other fields as transforms."""
    decoder: str | None = Field(None, max_length=4000)
    """Any decoder, written as in Python; replaces all sampling fields."""
    stop_token_ids: list[TokenId] = Field([], max_length=64)
    stop_loops: bool = False
    """End a text that repeats itself in a loop."""
    stop_approximate_loops: bool = False
    """End a text also if it repeats itself approximately."""

    @model_validator(mode="before")
    @classmethod
    def _rename_synonyms(cls, data: Any) -> Any:
        """Rename the fields of other servers; a field under its own name counts."""
        if not isinstance(data, dict) or not SYNONYMS.keys() & data.keys():
            return data
        fields = {name: value for name, value in data.items() if name not in SYNONYMS}
        for synonym in SYNONYMS.keys() & data.keys():
            name, _, inner = SYNONYMS[synonym].partition(".")
            if data[synonym] is not None:
                fields.setdefault(name, {inner: data[synonym]} if inner else data[synonym])
        return fields


class CompletionRequest(DecodingFields):
    """The body of /v1/completions. A prompt may contain special tokens; messages of a chat may not."""

    prompt: Prompts
    max_tokens: int = Field(16, ge=-1, le=1_000_000)
    """−1: to the end of the context."""
    best_of: int | None = Field(None, ge=1, le=256)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=20)
    prompt_logprobs: int | None = Field(None, ge=0, le=20)
    suffix: None = None


class ChatRequest(DecodingFields):
    """The body of /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_tokens: int = Field(-1, ge=-1, le=1_000_000)
    """−1: to the end of the context. `max_completion_tokens` is the same."""
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=20)
    tools: list[Tool] = Field([], max_length=128)
    tool_choice: ToolChoice | None = None
    """auto if there are tools."""
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] = Field({}, max_length=64)
    """Variables of the chat template, such as enable_thinking."""
    reasoning_effort: str | None = Field(None, max_length=40)
    """Passed to the chat template; "none" sets enable_thinking to false."""
    thinking_budget: int | None = Field(None, ge=0, le=1_000_000)
    """Tokens of reasoning; at this limit the closing mark is forced."""

    def template_variables(self) -> Mapping[str, Any]:
        effort = {} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort}
        if self.reasoning_effort == "none":
            effort["enable_thinking"] = False  # type: ignore[assignment]
        return {**effort, **self.chat_template_kwargs}


class TokenizeRequest(RequestModel):
    """The body of /tokenize: a prompt, or the messages of a chat."""

    model: str | None = Field(None, max_length=1000)
    prompt: str | None = None
    messages: list[Message] = Field([], max_length=4096)
    tools: list[Tool] = Field([], max_length=128)
    chat_template_kwargs: dict[str, Any] = Field({}, max_length=64)
    add_special_tokens: bool = True
    """Whether the tokens begin with BOS, if the tokenizer adds one."""


class DetokenizeRequest(RequestModel):
    """The body of /detokenize."""

    model: str | None = Field(None, max_length=1000)
    tokens: Annotated[list[TokenId], Field(max_length=1_000_000)]


class EmbeddingRequest(RequestModel):
    """The body of /v1/embeddings."""

    model: str = Field(max_length=1000)
    input: Prompts
    encoding_format: Literal["float", "base64"] = "float"


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
