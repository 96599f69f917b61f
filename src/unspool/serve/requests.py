"""Request bodies of completions, chats, embeddings and tokenization: OpenAI's fields and additions to them.

The additions have the names of vLLM and llama.cpp; `SYNONYMS` lists further names of the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from unspool.serve.messages import Message, Tool, ToolChoice
from unspool.serve.request_base import Ids, Int64, RequestModel, TokenId

Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Text = Annotated[str, Field(min_length=1)]

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
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=1024)] | None = None
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

    prompt: (
        Text
        | Ids
        | Annotated[list[Text], Field(min_length=1, max_length=256)]
        | Annotated[list[Ids], Field(min_length=1, max_length=256)]
    )
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
        """The variables of the chat template."""
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
    input: (
        Text
        | Ids
        | Annotated[list[Text], Field(min_length=1, max_length=256)]
        | Annotated[list[Ids], Field(min_length=1, max_length=256)]
    )
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
    """Seconds per request."""
