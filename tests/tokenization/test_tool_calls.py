from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from unspool.tokenization.tool_calls import FORMATS, MessageParser, knows_tools, tool_format

HERMES = FORMATS["hermes"]


def parse(pieces, **settings):
    """The reasoning, the content and the calls (name, arguments) of a reply that arrives in pieces."""
    parser = MessageParser(**settings)
    parts = [parser.feed(piece) for piece in pieces] + [parser.feed("", is_last=True)]
    calls = []
    for call in (call for part in parts for call in part.calls):
        if call.name is not None:
            assert call.index == len(calls)
            assert len(call.id) == 9
            calls.append([call.name, ""])
        assert call.index == len(calls) - 1
        calls[-1][1] += call.arguments
    return "".join(it.reasoning for it in parts), "".join(it.content for it in parts), calls


CALL = '{"name": "f", "arguments": {"a": "}\\"<tool_call>", "b": [1, {"c": 2}]}}'
ARGUMENTS = '{"a": "}\\"<tool_call>", "b": [1, {"c": 2}]}'
REPLIES = {
    "text": ("Hello <b>", {"tools": HERMES}, ("", "Hello <b>", [])),
    "no tools": (CALL, {"tools": None}, ("", CALL, [])),
    "call": (f"<tool_call>\n{CALL}\n</tool_call>", {"tools": HERMES}, ("", "", [["f", ARGUMENTS]])),
    "text and calls": (
        f'So:\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{{"name": "g", "arguments": {{}}}}\n</tool_call>',
        {"tools": HERMES},
        ("", "So:\n", [["f", ARGUMENTS], ["g", "{}"]]),
    ),
    "cut call": ('<tool_call>\n{"name": "f", "arguments": {"a', {"tools": HERMES}, ("", "", [["f", '{"a']])),
    "mark without a call": ("a <tool_call> b", {"tools": HERMES}, ("", "a <tool_call> b", [])),
    "llama": (
        '{"name": "f", "parameters": {"x": 1}}',
        {"tools": FORMATS["llama"]},
        ("", "", [["f", '{"x": 1}']]),
    ),
    "mistral": (
        f"[TOOL_CALLS] [{CALL}, {CALL}]",
        {"tools": FORMATS["mistral"]},
        ("", "", [["f", ARGUMENTS]] * 2),
    ),
    "reasoning": (
        "<think>\nA < B\n</think>\n\nYes",
        {"tools": None, "thinks": True},
        ("\nA < B\n", "Yes", []),
    ),
    "reasoning opened by the prompt": (
        "Hm</think>\nNo",
        {"tools": None, "thinks": True, "is_thinking": True},
        ("Hm", "No", []),
    ),
    "unfinished reasoning": ("<think>Hm</th", {"tools": None, "thinks": True}, ("Hm</th", "", [])),
    "reasoning and a call": (
        f"<think>x</think>\n<tool_call>\n{CALL}\n</tool_call>",
        {"tools": HERMES, "thinks": True},
        ("x", "", [["f", ARGUMENTS]]),
    ),
    "no reasoning": ("<thing>", {"tools": None, "thinks": True}, ("", "<thing>", [])),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_has_reasoning_content_and_calls(name):
    text, options, expected = REPLIES[name]
    assert parse([text], **options) == expected
    assert parse(list(text), **options) == expected


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(sorted(REPLIES)), st.lists(st.integers(0, 90), max_size=8))
def test_the_parts_do_not_depend_on_where_the_stream_is_cut(name, cuts):
    text, options, expected = REPLIES[name]
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert parse(pieces, **options) == expected


def test_text_is_streamed_before_the_end():
    parser = MessageParser(HERMES)
    assert parser.feed("Hello <tool").content == "Hello "
    assert parser.feed("box>").content == "<toolbox>"
    parser = MessageParser(HERMES)
    parts = parser.feed('<tool_call>\n{"name": "f", "arguments": {"a": "Par')
    assert [call.arguments for call in parts.calls] == ['{"a": "Par']


def test_the_template_decides_the_format():
    assert tool_format("{{ '<tool_call>' }}") is HERMES
    assert tool_format("[TOOL_CALLS]") is FORMATS["mistral"]
    assert tool_format('{"name": f, "parameters": p}') is FORMATS["llama"]
    assert tool_format("no tools") is HERMES
    assert knows_tools("{% if tools %}")
    assert not knows_tools("{{ messages }}")
