"""Messages and tools of a chat request, and the form in which a chat template reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from unspool.interfaces import TokenizerLike
from unspool.serve.api_error import ApiError
from unspool.serve.request_base import RequestModel
from unspool.tokenization.tool_calls import describe_tools, knows_tools

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
    described = [{"type": "function", "function": it.function.model_dump(exclude_none=True)} for it in tools]
    options: dict[str, Any] = {"variables": variables} if variables else {}
    if not knows_tools(template):
        records = describe_tools(records, described)
    elif described:
        options["tools"] = described
    chat: Any = tokenizer.chat  # the protocol names only the messages
    rendered: str = chat(records, **options)
    return rendered
