"""Formats of tool calls and reasoning, and a parser that splits a streamed reply into its parts.

    reply      = [reasoning] (content | [content] calls)
    reasoning  = <think> … </think>                          the opening mark may be a part of the prompt
    calls      = mark begin call (between call)* end
    call       = {"name": "NAME", "arguments": {…}}

The chat template of a model decides which marks it writes (`FORMATS`). The grammar of the server
enforces these forms; the parser also reads replies that were generated without it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

THINK, END_THINK = "<think>", "</think>"


@dataclass(frozen=True)
class ToolFormat:
    """Marks and keys with which a model writes tool calls."""

    template_marks: tuple[str, ...]
    """The chat template uses this format if it contains one of these."""
    mark: str
    """Written before the first call; "" if a reply that begins with a call has no mark."""
    begin: str
    between: str | None
    """Written between two calls; None if there is only one call in a reply."""
    end: str
    arguments: str = "arguments"
    """The key of the arguments."""


FORMATS: dict[str, ToolFormat] = {
    "hermes": ToolFormat(
        ("<tool_call>",), "<tool_call>", "\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>"
    ),
    "mistral": ToolFormat(("[TOOL_CALLS]",), "[TOOL_CALLS]", " [", ", ", "]"),
    "llama": ToolFormat(('"parameters"', "python_tag"), "", "", None, "", "parameters"),
}
"""Formats by the model family that introduced them. Qwen, SmolLM and most small models use that of Hermes."""


def tool_format(template: str) -> ToolFormat:
    """The format that a chat template writes; Hermes if it writes none."""
    written = (form for form in FORMATS.values() if any(mark in template for mark in form.template_marks))
    return next(written, FORMATS["hermes"])


def knows_tools(template: str) -> bool:
    """True if a chat template renders tools."""
    return bool(re.search(r"\btools\b", template))


HOW_TO_CALL = """You may call functions. They are listed as JSON between <tools> and </tools>:
<tools>
{tools}
</tools>
To call a function, write only its name and arguments as JSON, like this:
<tool_call>
{{"name": "FUNCTION", "arguments": {{"ARGUMENT": "VALUE"}}}}
</tool_call>"""
"""The instruction of Hermes 2 Pro, for models whose template does not know tools."""


def describe_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """For a template that does not know tools: tools as a part of the system message, calls as text."""
    plain = [_as_plain(message) for message in messages]
    if not tools:
        return plain
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    instruction = HOW_TO_CALL.format(tools=listed)
    if plain and plain[0]["role"] == "system":
        first = {**plain[0], "content": f"{plain[0]['content']}\n\n{instruction}"}
        return [first, *plain[1:]]
    return [{"role": "system", "content": instruction}, *plain]


def _as_plain(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        f"<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>"
        for call in message.get("tool_calls", ())
    ]
    texts = [message["content"], *calls]
    return {"role": message["role"], "content": "\n".join(text for text in texts if text)}


@dataclass
class CallDelta:
    """New text of one tool call; the id and the name come with its first part."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass
class MessageDelta:
    """New text of a reply."""

    content: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list)


HEAD = re.compile(r'\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*')


class MessageParser:
    """Splits a reply into reasoning, content and tool calls, as its text arrives."""

    def __init__(self, tools: ToolFormat | None, *, thinks: bool = False, is_thinking: bool = False) -> None:
        self.calls = 0
        """The number of calls so far."""
        self._tools, self._thinks = tools, thinks
        self._is_after_thought = False
        self._buffer, self._depth, self._in_string, self._is_escaped = "", 0, False, False
        self._state: Callable[[MessageDelta, bool], bool] = self._thought if is_thinking else self._start

    def feed(self, text: str, is_last: bool = False) -> MessageDelta:
        """The parts of the reply that this text completes. Text that may be a mark is kept for later."""
        self._buffer += text
        delta = MessageDelta()
        while self._state(delta, is_last):
            pass
        return delta

    # Each state reads the buffer, and returns whether the next state can go on.

    def _start(self, _: MessageDelta, is_last: bool) -> bool:
        begin = self._buffer.lstrip()
        if self._thinks and begin.startswith(THINK):
            self._buffer, self._state = begin.removeprefix(THINK), self._thought
            return True
        if not is_last and (not begin or (self._thinks and THINK.startswith(begin))):
            return False
        self._buffer = begin if self._is_after_thought else self._buffer
        is_bare_call = self._tools is not None and not self._tools.mark and begin.startswith("{")
        self._state = self._call if is_bare_call else self._content
        return True

    def _thought(self, delta: MessageDelta, is_last: bool) -> bool:
        text, is_found = self._until(END_THINK, is_last)
        delta.reasoning += text
        if is_found:
            self._state, self._thinks, self._is_after_thought = self._start, False, True
        return is_found

    def _content(self, delta: MessageDelta, is_last: bool) -> bool:
        if self._tools is None or not self._tools.mark:
            delta.content += self._buffer
            self._buffer = ""
            return False
        text, is_found = self._until(self._tools.mark, is_last)
        delta.content += text
        if is_found:
            self._state = self._call
        return is_found

    def _call(self, delta: MessageDelta, is_last: bool) -> bool:
        head = HEAD.search(self._buffer)
        if head is None:
            if is_last and not self.calls and self._tools is not None:  # a mark without a call is text
                delta.content += self._tools.mark + self._buffer
                self._buffer = ""
            return False
        # An id of nine characters, because the template of Mistral requires this length.
        delta.calls.append(CallDelta(self.calls, secrets.token_hex(5)[:9], head[1]))
        self.calls += 1
        self._buffer, self._state = self._buffer[head.end() :], self._arguments
        return True

    def _arguments(self, delta: MessageDelta, _: bool) -> bool:
        if not self._depth:
            self._buffer = self._buffer.lstrip()
        for at, character in enumerate(self._buffer):
            if self._is_escaped or (self._in_string and character == "\\"):
                self._is_escaped = not self._is_escaped
            elif character == '"':
                self._in_string = not self._in_string
            elif not self._in_string and character in "{[":
                self._depth += 1
            elif not self._in_string and character in "}]":
                self._depth -= 1
            if not self._depth and not self._in_string and character in "}]":
                self._add_arguments(delta, self._buffer[: at + 1])
                self._buffer, self._state = self._buffer[at + 1 :], self._call
                return True
        self._add_arguments(delta, self._buffer)
        self._buffer = ""
        return False

    def _add_arguments(self, delta: MessageDelta, text: str) -> None:
        if not text:
            return
        if not delta.calls or delta.calls[-1].index != self.calls - 1:
            delta.calls.append(CallDelta(self.calls - 1))
        delta.calls[-1].arguments += text

    def _until(self, mark: str, is_last: bool) -> tuple[str, bool]:
        """The text before the mark, removed from the buffer, and whether the mark was found."""
        text, found, rest = self._buffer.partition(mark)
        if not found and not is_last:
            kept = next((size for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), 0)
            text, rest = text[: len(text) - kept], text[len(text) - kept :]
        self._buffer = rest
        return text, bool(found)
