"""The grammar of a request: response_format, structured_outputs, tools and the reasoning before them.

    start: reasoning? (answer | TEXT | calls)

The rules are llguidance's Lark, and `us.Grammar` enforces them. Each schema is a rule of its own, so that
references inside it ("#/$defs/…") stay valid.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import unspool as us
from unspool.interfaces import TokenizerLike
from unspool.serve.messages import NamedTool, Tool, ToolChoice
from unspool.serve.requests import DecodingFields, ResponseFormat, StructuredOutputs
from unspool.tokenization.tool_calls import END_THINK, THINK, ToolFormat

NO_ARGUMENTS = {"type": "object", "properties": {}}


def answer_grammar(fields: DecodingFields) -> us.Grammar | None:
    """The grammar of the answer, if the request restricts it."""
    given = [it for it in (_format(fields.response_format), _structured(fields.structured_outputs)) if it]
    if len(given) > 1:
        raise ValueError("give one of response_format and structured_outputs")
    return us.Grammar(**given[0]) if given else None


def _format(format_: ResponseFormat | None) -> dict[str, Any]:
    if format_ is None or format_.type == "text":
        return {}
    if format_.type == "json_object":
        return {"json_schema": {"type": "object"}}
    if format_.json_schema is None:
        raise ValueError('response_format of type "json_schema" needs json_schema')
    return {"json_schema": format_.json_schema.schema_}


def _structured(outputs: StructuredOutputs | None) -> dict[str, Any]:
    """The argument of Grammar for the field of vLLM."""
    if outputs is None:
        return {}
    grammars: dict[str, Any] = {
        "json_schema": {"type": "object"} if outputs.json_object else outputs.json_schema,
        "regex": outputs.regex,
        "choices": outputs.choice,
        "lark": None if outputs.grammar is None else _as_lark(outputs.grammar),
    }
    given = {name: value for name, value in grammars.items() if value is not None}
    if len(given) != 1:
        raise ValueError("structured_outputs needs one of json, json_object, regex, choice and grammar")
    return given


def _as_lark(grammar: str) -> str:
    """A grammar in GBNF (llama.cpp) or Lark as Lark."""
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        lark: str = any_to_lark(grammar)
    except Exception as error:  # its parser raises many types
        raise ValueError(f"the grammar is neither GBNF nor Lark ({type(error).__name__})") from None
    return lark


@dataclass(frozen=True)
class Reply:
    """What the reply to a chat may contain besides its answer."""

    tools: Sequence[Tool] = ()
    choice: ToolChoice = "auto"
    is_parallel: bool = True
    format: ToolFormat | None = None
    """None if no tool can be called."""
    thinks: bool = False
    """Whether the model may write its reasoning first."""
    is_thinking: bool = False
    """Whether the prompt has opened the reasoning."""


def reply_grammar(answer: us.Grammar | None, reply: Reply, tokenizer: TokenizerLike) -> us.Grammar | None:
    """The grammar of a whole reply; None if any text is allowed."""
    if reply.format is None and (answer is None or not reply.thinks or answer.lark is not None):
        return answer
    parts, rules = [], {"ANY": "/(.|\\n)*/"}
    if answer is not None:
        rules["answer"] = answer.to_lark().removeprefix("start: ")
        parts.append("answer")
    elif reply.choice == "auto":
        # Without a mark, a reply that begins with a brace is a call.
        rules["TEXT"] = "/(.|\\n)*/" if reply.format and reply.format.mark else "/([^{](.|\\n)*)?/"
        parts.append("TEXT")
    if reply.format is not None:
        has_text = answer is None and reply.choice == "auto"
        rules |= _call_rules(reply, reply.format, has_text, tokenizer)
        parts.append("calls")
    rules["start"] = " | ".join(parts)
    if reply.thinks:
        rules["thought[lazy]"] = f"ANY {json.dumps(END_THINK)}"
        closed = "thought /\\n{0,2}/"
        rules["reasoning"] = closed if reply.is_thinking else f"({json.dumps(THINK)} {closed})?"
        rules["start"] = f"reasoning ({rules['start']})"
    return us.Grammar(lark="\n".join(f"{name}: {rule}" for name, rule in rules.items()))


def _call_rules(
    reply: Reply, format_: ToolFormat, has_text: bool, tokenizer: TokenizerLike
) -> dict[str, str]:
    """The rules of one or several tool calls, after any text if `has_text`."""
    rules, mark = {}, json.dumps(format_.mark)
    if format_.mark and has_text:
        rules["mark[lazy]"] = f"ANY {mark}"
        mark = "mark"
    token = tokenizer.token_to_id(format_.mark) if hasattr(tokenizer, "token_to_id") else None
    if token is not None and tokenizer.piece(token) is None:  # a special token, which text does not spell
        mark = f"ANY <[{token}]>" if has_text else f"<[{token}]>"
        rules.pop("mark[lazy]", None)
    tools = [it.function for it in reply.tools]
    if isinstance(reply.choice, NamedTool):
        tools = [it for it in tools if it.name == reply.choice.function.name]
    for index, tool in enumerate(tools):
        head = f'{{"name": {json.dumps(tool.name)}, "{format_.arguments}": '
        rules[f"call_{index}"] = f"{json.dumps(head)} arguments_{index} {json.dumps('}')}"
        rules[f"arguments_{index}"] = f"%json {_schema(tool.parameters, tool.strict)}"
    rules["call"] = " | ".join(f"call_{index}" for index in range(len(tools)))
    is_single = format_.between is None or not reply.is_parallel or isinstance(reply.choice, NamedTool)
    more = "" if is_single else f"({json.dumps(format_.between)} call)*"
    begin, end = (json.dumps(it) if it else "" for it in (format_.begin, format_.end))
    rules["calls"] = f"{mark if format_.mark else ''} {begin} call {more} {end}"
    return rules


def _schema(parameters: dict[str, Any], is_strict: bool) -> str:
    """The schema of a tool's arguments: an object without undeclared keys, unless it says otherwise."""
    schema = {"additionalProperties": False, **(parameters or NO_ARGUMENTS), "type": "object"}
    options = {**schema.get("x-guidance", {}), "whitespace_pattern": " ", "lenient": not is_strict}
    return json.dumps({**schema, "x-guidance": options})
