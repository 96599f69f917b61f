"""/v1/responses: chats in OpenAI's newer format. A request becomes a chat, and its reply a list of items.

    input   = text | [message | function_call | function_call_output | reasoning]
    output  = [reasoning] [message] [function_call …]

Nothing is stored: `previous_response_id` is refused, and clients send the whole history.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from unspool.decode.output import Piece
from unspool.interfaces import TokenizerLike
from unspool.serve.api_error import ApiError, error_record
from unspool.serve.requests import (
    ChatRequest,
    ContentPart,
    DecodingFields,
    Function,
    RequestModel,
    Schema,
    ToolName,
)
from unspool.serve.response_builders import FINISH_REASONS, ChatBuilder
from unspool.serve.response_models import ResponseModel

# ---- requests


class InputItem(RequestModel):
    """A message, a call of a function, its result, or reasoning."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: str = Field(default="user", max_length=100)
    content: str | list[ContentPart] = ""
    call_id: str = Field(default="", max_length=1000)
    name: str = Field(default="", max_length=1000)
    arguments: str = "{}"
    output: str | list[ContentPart] = ""


class FunctionTool(Function):
    """A function that the model may call."""

    type: Literal["function"] = "function"


class FunctionChoice(ToolName):
    """A tool_choice that names one function."""

    type: Literal["function"] = "function"


class TextFormat(RequestModel):
    """Any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    schema_: Schema | None = Field(default=None, alias="schema")


class TextSettings(RequestModel):
    """Settings of the text."""

    format: TextFormat = TextFormat()


class Reasoning(RequestModel):
    """Settings of the reasoning."""

    effort: str | None = Field(default=None, max_length=40)


class ResponsesRequest(DecodingFields):
    """The body of /v1/responses."""

    n: Literal[1] = 1
    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=4096)]
    instructions: str | None = None
    max_tokens: int = Field(-1, ge=-1, le=1_000_000)
    """−1: to the end of the context. `max_output_tokens` is the same."""
    tools: list[FunctionTool] = Field([], max_length=128)
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool = True
    text: TextSettings = TextSettings()
    reasoning: Reasoning = Reasoning()
    previous_response_id: None = None
    """Refused: this server does not store responses."""
    chat_template_kwargs: dict[str, Any] = Field({}, max_length=64)
    thinking_budget: int | None = Field(None, ge=0, le=1_000_000)

    def as_chat(self) -> ChatRequest:
        same = {*DecodingFields.model_fields, "max_tokens", "parallel_tool_calls", "thinking_budget"}
        fields = {name: getattr(self, name) for name in same & self.model_fields_set}
        fields["messages"] = list(self._messages())
        fields["tools"] = [
            {"function": tool.model_dump(include={"name", "description", "parameters", "strict"})}
            for tool in self.tools
        ]
        choice = self.tool_choice
        fields["tool_choice"] = (
            {"function": {"name": choice.name}} if isinstance(choice, FunctionChoice) else choice
        )
        form = self.text.format
        if form.type != "text":
            schema = {"name": form.name, "schema": form.schema_} if form.schema_ is not None else None
            fields["response_format"] = {"type": form.type, "json_schema": schema}
        fields["chat_template_kwargs"] = self.chat_template_kwargs
        fields["reasoning_effort"] = self.reasoning.effort
        return ChatRequest.model_validate(fields)

    def _messages(self) -> Iterator[dict[str, Any]]:
        if self.instructions is not None:
            yield {"role": "system", "content": self.instructions}
        items = [InputItem(content=self.input)] if isinstance(self.input, str) else self.input
        calls: list[dict[str, Any]] = []
        for item in items:
            if item.type == "function_call":
                function = {"name": item.name, "arguments": item.arguments}
                calls.append({"id": item.call_id, "function": function})
                continue
            if calls:  # consecutive calls are one message of the model
                yield {"role": "assistant", "tool_calls": calls}
                calls = []
            if item.type == "function_call_output":
                yield {"role": "tool", "content": item.output, "tool_call_id": item.call_id}
            elif item.type == "message":
                yield {"role": item.role, "content": item.content}
        if calls:
            yield {"role": "assistant", "tool_calls": calls}


# ---- responses


class ResponseObject(ResponseModel):
    """The response of /v1/responses."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["completed", "incomplete", "in_progress", "failed"]
    error: dict[str, Any] | None = None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any]
    model: str
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    previous_response_id: None = None
    store: Literal[False] = False
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: dict[str, Any] | None


ITEM_TEXTS = {
    "reasoning": ("reasoning_text", "rs_"),
    "message": ("output_text", "msg_"),
    "function_call": ("function_call_arguments", "fc_"),
}
"""Type of an item → the name of the events of its text, and the prefix of its id."""


class ResponsesBuilder(ChatBuilder):
    """Builds a response of /v1/responses, or its events."""

    end: ClassVar = b""

    def __init__(self, chat: ChatRequest, body: ResponsesRequest, tokenizer: TokenizerLike | None) -> None:
        super().__init__(chat, tokenizer, None)
        self._request, self._id = body, f"resp_{secrets.token_hex(16)}"
        self._items: list[dict[str, Any]] = []
        self._finish: str | None = None
        self._events = self._reasoning_tokens = 0
        self._created = int(time.time())

    def add(self, piece: Piece) -> None:
        for _ in self.chunks(piece):
            pass

    def response(self) -> dict[str, Any]:
        for _ in self._close_item():
            pass
        return self._object("incomplete" if self._finish == "length" else "completed")

    def opening(self) -> Iterator[dict[str, Any]]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._object("in_progress"))

    def chunks(self, piece: Piece) -> Iterator[dict[str, Any]]:
        parts = self.parse((0, 0), piece.text, is_last=piece.finish_reason is not None)
        if parts.reasoning and not parts.content:
            self._reasoning_tokens += len(piece.tokens)
        for kind, text in (("reasoning", parts.reasoning), ("message", parts.content)):
            if text:
                if not self._is_open(kind):
                    yield from self._open_item({"type": kind})
                yield from self._append(text)
        for call in parts.calls:
            if call.name is not None:
                item = {"type": "function_call", "call_id": call.id, "name": call.name}
                yield from self._open_item(item)
            yield from self._append(call.arguments)
        self._finish = FINISH_REASONS[piece.finish_reason]

    def closing(self) -> Iterator[dict[str, Any]]:
        yield from self._close_item()
        response = self.response()
        yield self._event(f"response.{response['status']}", response=response)

    def failed(self, error: ApiError) -> dict[str, Any]:
        response = self._object("failed")
        detail = error_record(error)["error"]
        response["error"] = {"code": detail["code"] or "server_error", "message": detail["message"]}
        return self._event("response.failed", response=response)

    def usage(self) -> dict[str, Any]:
        """The token counts under the names of this API, and those of a chat."""
        counts = super().usage()
        return {
            **counts,
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": self.record.cached_tokens},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
        }

    def _is_open(self, kind: str) -> bool:
        last = self._items[-1] if self._items else {}
        return last.get("type") == kind and last["status"] == "in_progress"

    def _open_item(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self._close_item()
        kind = item["type"]
        item |= {"id": ITEM_TEXTS[kind][1] + secrets.token_hex(16), "status": "in_progress"}
        if kind == "function_call":
            item["arguments"] = ""
        else:
            item["content"] = [{"type": ITEM_TEXTS[kind][0], "text": ""}]
        if kind == "message":
            item["role"] = "assistant"
            item["content"][0] |= {"annotations": [], "logprobs": []}
        if kind == "reasoning":
            item["summary"] = []
        self._items.append(item)
        empty = {**item, "content": []} if "content" in item else dict(item)
        yield self._event("response.output_item.added", item=empty)
        if "content" in item:
            yield self._event("response.content_part.added", part=dict(item["content"][0]))

    def _append(self, text: str) -> Iterator[dict[str, Any]]:
        item = self._items[-1]
        if not text:
            return
        if "content" in item:
            item["content"][0]["text"] += text
        else:
            item["arguments"] += text
        yield self._event(f"response.{ITEM_TEXTS[item['type']][0]}.delta", delta=text)

    def _close_item(self) -> Iterator[dict[str, Any]]:
        if not self._items or self._items[-1]["status"] != "in_progress":
            return
        item = self._items[-1]
        item["status"] = "completed"
        done = f"response.{ITEM_TEXTS[item['type']][0]}.done"
        if "content" in item:
            yield self._event(done, text=item["content"][0]["text"])
            yield self._event("response.content_part.done", part=item["content"][0])
        else:
            yield self._event(done, arguments=item["arguments"], name=item["name"])
        yield self._event("response.output_item.done", item=item)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        """An event with its number, and the place of its item."""
        place: dict[str, Any] = {}
        if "response" not in fields:
            place["output_index"] = len(self._items) - 1
        if "item" not in fields and place:
            place["item_id"] = self._items[-1]["id"]
            if "content" in self._items[-1]:
                place["content_index"] = 0
        if "output_text" in kind:
            place["logprobs"] = []
        self._events += 1
        return {"type": kind, "sequence_number": self._events - 1, **place, **fields}

    def _object(self, status: Any) -> dict[str, Any]:
        body, choice = self._request, self._request.tool_choice or "auto"
        metadata = (body.model_extra or {}).get("metadata")
        return ResponseObject(
            id=self._id,
            created_at=self._created,
            status=status,
            incomplete_details={"reason": "max_output_tokens"} if status == "incomplete" else None,
            instructions=body.instructions,
            max_output_tokens=None if body.max_tokens < 0 else body.max_tokens,
            metadata=metadata if isinstance(metadata, dict) else {},
            model=body.model,
            output=self._items,
            parallel_tool_calls=body.parallel_tool_calls,
            temperature=body.temperature,
            text=body.text.model_dump(by_alias=True, exclude_none=True, include={"format"}),
            tool_choice=choice if isinstance(choice, str) else choice.model_dump(),
            tools=[tool.model_dump() for tool in body.tools],
            top_p=body.top_p,
            usage=None if status == "in_progress" else self.usage(),
        ).model_dump()
