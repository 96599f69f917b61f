from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from unspool.tokenization import render_chat, template_sandbox
from unspool.tokenization.template_sandbox import MAX_MEMORY_BYTES, chat_sandbox, render

HELLO = [{"role": "user", "content": "Hello"}]
DOUBLE = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = GROW %}{% endfor %}{{ USE }}"


def double(start: str, grow: str, use: str = "ns.x") -> str:
    return DOUBLE.replace("START", start).replace("GROW", grow).replace("USE", use)


GROWING = {
    "times": "{{ 'a' * 10 ** 9 }}",
    "times, the other way": "{{ 1000000000 * 'a' }}",
    "times, a list": "{{ [0] * 1000000000 }}",
    "times, a number": double("3", "ns.x * ns.x"),
    "power": "{{ 9 ** (9 ** 9) }}",
    "power of a fraction": "{{ 2.0 ** 100000 }}",
    "plus": double("'a'", "ns.x + ns.x"),
    "tilde": double("'a'", "ns.x ~ ns.x"),
    "plus, lists": double("['a']", "ns.x + ns.x"),
    "a list in a list": double("['a']", "[ns.x, ns.x]"),
    "a tuple in a tuple": double("('a', 1)", "(ns.x, ns.x)", "{ns.x: 1}"),
    "a dict in a dict": double("{}", "{1: ns.x, 2: ns.x}"),
    "a dict by name": double("{}", "dict(a=ns.x, b=ns.x)"),
    "arguments": "{% set ns = namespace(x=(1, 2)) %}{% macro f() %}{% set ns.x = varargs %}{% endmacro %}"
    "{% for i in range(60) %}{{ f(ns.x, ns.x) }}{% endfor %}{{ ns.x }}",
    "a captured block": "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "a captured loop": "{% set y %}{% for i in range(99999) %}"
    + "x" * 1000
    + "{% endfor %}{% endset %}{{ y }}",
    "range": "{{ range(1000000000) | list }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "center by name": "{{ 'a' | center(width=1000000000) }}",
    "center of each": "{{ ['a'] | map('center', 1000000000) | list }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ '1'.zfill(1000000000) }}",
    "expandtabs": "{{ ('\t' * 100000).expandtabs(1000000) }}",
    "indent": "{{ ('a\n' * 100000) | indent(100000) }}",
    "batch": "{{ 'abc' | batch(1000000000, 'x') | list }}",
    "slice": "{{ 'abc' | slice(1000000000) | list }}",
    "replace": "{% set b = 'a' * 100000 %}{{ b | replace('a', b) }}",
    "str.replace": "{% set b = 'a' * 100000 %}{{ b.replace('a', b) }}",
    "translate": "{{ ('a' * 100000).translate({97: 'a' * 100000}) }}",
    "join": "{% set b = 'a' * 100000 %}{{ b | join(b) }}",
    "str.join": "{% set b = 'a' * 100000 %}{{ b.join(b) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent, computed": "{{ '%*d' % (1000000000, 1) }}",
    "format": "{{ '%1000000000d' | format(1) }}",
    "str.format": "{{ '{:1000000000}'.format(1) }}",
    "str.format, computed": "{{ '{:{}}'.format(1, '1000000000') }}",
    "str.format, repeated": "{% set b = 'a' * 100000 %}{{ ('{0}' * 100000).format(b) }}",
}

ENDLESS = {
    "many large values": "{% set ns = namespace(x='') %}{% for i in range(99999) %}"
    "{% set ns.x = 'a' * 900000 %}{% endfor %}" * 20,
    "a long attribute": "{{ range(9999) | map(attribute='real.' * 2000 ~ 'real') | list }}",
    "a long attribute to sort by": "{{ range(9999) | sort(attribute='real.' * 2000 ~ 'real') | length }}",
    "two doubled lists, compared": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "a doubled list, as JSON": double("[1]", "[ns.x, ns.x]", "ns.x | tojson"),
    "many groups": "{{ range(99999) | groupby('real') | length }}" * 500,
    "strings in strings": "{% set a = 'a' * 300000 %}{% for i in range(99999) %}{{ (a + 'b') in (a + a) }}{% endfor %}",
    "a long template": "{{ a }}" * 28_000,
}

DEEP = {
    "recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "a recursive loop": "{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "lists": "{{ " + "[" * 3000 + "1" + "]" * 3000 + " }}",
}

REACHING = {
    "a class": "{{ ''.__class__.__mro__ }}",
    "a class by a filter": "{{ ('' | attr('__class__')).x }}",
    "a class of each": "{{ ([''] | map(attribute='__class__') | first).x }}",
    "a function's module": "{{ raise_exception.__globals__['re'] }}",
    "a changed list": "{{ messages.append(1) }}",
    "a file": "{% include '/etc/hostname' %}",
    "a module": "{% import '/etc/passwd' as x %}",
    "a tokenizer's file": "{{ 'x'.encode('punycode') }}",
    "format's attributes": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "format_map's attributes": "{{ '{a.__class__.x}'.format_map({'a': 1}) }}",
    "what a loop is": "{% for i in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "what a template is": "{{ self.__init__.__globals__ }}",
}


@pytest.mark.parametrize("template", (GROWING | DEEP).values(), ids=(GROWING | DEEP).keys())
def test_template_injection_memory_bombs_are_rejected(template: str) -> None:
    with pytest.raises((ValueError, TimeoutError), match="the chat template"):
        render_chat(template, HELLO, seconds=1.0)


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS.keys())
def test_template_injection_endless_loops_time_out(template: str) -> None:
    with pytest.raises(TimeoutError, match=r"did not finish within 0\.2 s"):
        render_chat(template, HELLO, seconds=0.2)


@pytest.mark.parametrize("template", REACHING.values(), ids=REACHING.keys())
def test_template_injection_cannot_reach_python_or_files(template: str) -> None:
    with pytest.raises(ValueError, match="failed on these messages"):
        render_chat(template, HELLO)


def test_ordinary_templates_render() -> None:
    template = (
        "{% set ns = namespace(all=[], text='') %}"
        "{% for m in messages %}{% set ns.all = ns.all + [m] %}{% set ns.text = ns.text ~ m.content %}{% endfor %}"
        "{{ ns.all | length }} {{ ns.text | length }} {{ ns.text[:3] | replace('l', 'LL') | center(9) }}"
    )
    messages = [{"role": "user", "content": "hello " * 30}] * 300
    assert render_chat(template, messages, seconds=20) == "300 54000 " + "heLL".center(9)


def test_strftime_now_renders() -> None:
    assert len(render_chat("{{ strftime_now('%d %b %Y, 100%%') }}", HELLO)) == len("26 Jul 2024, 100%")


def test_render_returns_text_or_error() -> None:
    assert render("{{ a }}", {"a": "é"}, 1) == {"text": "é"}
    assert render("{{ a }}{{ a }}", {"a": "é"}, 1) == {"error": "it writes more than 1 characters"}
    assert render("{{ raise_exception('no') }}", {}, 9) == {"error": "no"}
    assert render("{{ raise_exception('') }}", {}, 9) == {"error": "TemplateError"}
    assert render("\n{% for %}", {}, 9)["syntax"].startswith("line 2: ")
    assert (
        chat_sandbox().from_string("{% generation %}{{ [1] | tojson }}{% endgeneration %}").render() == "[1]"
    )


ESCAPED = """
import runpy, sys
runpy.run_path(sys.argv[1])["confine"]()
try:
    print(eval(sys.argv[2]))
except (ImportError, OSError, MemoryError) as error:
    sys.exit(type(error).__name__)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all the limits")
@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        ("open('/etc/hostname')", "OSError"),
        ("open('/tmp/x', 'w')", "OSError"),
        ("__import__('_socket')", "ImportError"),
        ("__import__('os').pipe()", "OSError"),
        (f"'a' * {MAX_MEMORY_BYTES}", "MemoryError"),
    ],
)
def test_template_injection_escaped_process_cannot_open_files(attempt: str, error: str) -> None:
    command = [sys.executable, "-c", ESCAPED, str(Path(template_sandbox.__file__)), attempt]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", f"{error}\n", 1)
