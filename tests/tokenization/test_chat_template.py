from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from unspool.tokenization import chat_template, render_chat
from unspool.tokenization.chat_template import MAX_TEMPLATE_CHARS

CHATML = """{%- for message in messages %}
    {%- if message.role == 'secret' %}{% continue %}{% endif %}
    {{- '<|im_start|>' ~ message['role'] + '\n' + message['content'] | trim + '<|im_end|>' }}
{% endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""

HELLO = [{"role": "user", "content": "Hello"}]
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def test_chatml_by_hand() -> None:
    messages = [
        {"role": "system", "content": " Be kind. "},
        {"role": "secret", "content": "x"},
        {"role": "user", "content": "<b> & “q”"},
    ]
    expected = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n<b> & “q”<|im_end|>\n"
    assert render_chat(CHATML, messages) == expected + "<|im_start|>assistant\n"
    assert render_chat(CHATML, messages, add_generation_prompt=False) == expected


def test_template_variables_match_hugging_face() -> None:
    template = (
        "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ documents is none }}{{ unk_token is defined }}"
    )
    assert render_chat(template, HELLO, bos_token="<s>", eos_token="</s>") == "<s></s>TrueTrueFalse"


def test_rendering_equals_transformers() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    templates = [
        CHATML,
        "{{ messages | tojson }}|{{ messages | tojson(indent=2) }}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content | length %}{% endfor %}"
        "{{ ns.n }} {{ messages[::-1][0].role.upper() }} {{ messages | map(attribute='role') | join('/') }}",
        "{% macro say(m, more=['x']) %}[{{ m.role }}{{ more[0] ~ 1 }}]{% endmacro %}"
        "{% for m in messages if m.role in ('user', 'assistant') %}{{ say(m) }}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m.content.split('l')[-1].strip() }}{% endgeneration %}{% endfor %}",
        "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}{% set kept = [] %}"
        "{% for m in messages %}{% if m == users[-1] and not m.get('x') %}{% set kept = kept + [m] %}{{ kept }}"
        "{% elif (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ loop.revindex }}{{ m | dictsort }}{% endif %}"
        "{% endfor %}{{ kept }}{{ messages | map('upper') | first | default('') | string | trim }}",
        "{% set x %}a{{ messages[0].content }}{% endset %}{{ x * 3 }}{{ 7 % 4 }}{{ '%s-%s' | format(1, 'b') }}",
        "{{ '{}: {}'.format('a', 2) }}{{ {'k': [1, 2.5, none]} }}{{ dict(a=1) | items | list }}{{ 2 ** 5 }}",
    ]
    messages = [*HELLO, {"role": "assistant", "content": "  é < 日 "}]
    for template in templates:
        (reference,), _ = render_jinja_template(
            conversations=[messages], chat_template=template, add_generation_prompt=True
        )
        assert render_chat(template, messages) == reference


@pytest.mark.parametrize(
    ("messages", "error", "what"),
    [
        ([], ValueError, "messages is empty"),
        ("Hello", TypeError, "messages is a str"),
        ({"role": "user", "content": "x"}, TypeError, "messages is a dict"),
        (None, TypeError, "messages is a NoneType"),
        (["Hello"], TypeError, "message 0 is a str"),
        ([*HELLO, {"role": "user"}], ValueError, "message 1 has no 'content'"),
        ([{"content": "x"}], ValueError, "message 0 has no 'role'"),
        ([{"role": "user", "content": 3}], TypeError, "message 0: 'content' is a int"),
        ([{"role": "user", "content": "x", "more": []}], TypeError, "message 0: 'more' is a list"),
    ],
)
def test_malformed_messages_are_rejected(messages: Any, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        render_chat(CHATML, messages)


def test_raise_exception_message_is_reported() -> None:
    with pytest.raises(ValueError, match="failed on these messages: only users may speak"):
        render_chat("{{ raise_exception('only users may speak') }}", HELLO)


def test_invalid_template_reports_its_line() -> None:
    with pytest.raises(ValueError, match="not valid Jinja: line 2"):
        render_chat("a\n{% for %}", HELLO)
    with pytest.raises(ValueError, match="failed on these messages"):
        render_chat("{{ messages[7].content.x }}", HELLO)


def test_template_and_output_length_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="200,001 characters"):
        render_chat("x" * (MAX_TEMPLATE_CHARS + 1), HELLO)
    monkeypatch.setattr(chat_template, "MAX_RENDERED_CHARS", 1000)
    with pytest.raises(ValueError, match="more than 1,000 characters"):
        render_chat("{% for i in range(200) %}0123456789{% endfor %}", HELLO)
    assert len(render_chat("{% for i in range(100) %}0123456789{% endfor %}", HELLO)) == 1000


def test_endless_template_times_out() -> None:
    with pytest.raises(TimeoutError, match=r"did not finish within 0\.05 s"):
        render_chat(ENDLESS, HELLO, seconds=0.05)


@pytest.mark.parametrize(
    "template",
    [
        "{% macro f(n) %}{% for i in range(9) %}{{ f(n + 1) if n < 40 }}{% endfor %}{% endmacro %}{{ f(0) }}",
        "{% for a in range(99999) %}{% set x = messages | tojson | length %}{% endfor %}" * 20,
        "{% for a in range(99999) %}{% for b in range(9999) %}{% break %}{% endfor %}{% endfor %}" * 50,
    ],
)
def test_slow_templates_time_out(template: str) -> None:
    with pytest.raises(TimeoutError):
        render_chat(template, HELLO, seconds=0.05)


def test_a_timeout_does_not_affect_concurrent_chats() -> None:
    def write(at: int) -> str:
        if at % 2:
            with pytest.raises(TimeoutError):
                render_chat(ENDLESS, HELLO, seconds=0.02)
            return "stopped"
        return render_chat(CHATML, [{"role": "user", "content": str(at)}], seconds=20)

    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(write, range(12)))
    for at, text in enumerate(written):
        expected = "stopped" if at % 2 else f"<|im_start|>user\n{at}<|im_end|>\n<|im_start|>assistant\n"
        assert text == expected


def test_a_long_loop_within_the_time_limit_is_rendered() -> None:
    template = (
        "{% for a in range(300) %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}"
    )
    assert render_chat(template, HELLO, seconds=20) == ",".join(f"{at}/300" for at in range(1, 301))


def test_template_cannot_modify_messages() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    with pytest.raises(ValueError, match="unsafe"):
        render_chat("{{ messages.append(1) }}", messages)
    assert messages == HELLO
