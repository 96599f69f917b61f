from __future__ import annotations

import pytest
from jinja2.exceptions import SecurityError

from unspool.text import render_chat
from unspool.text.sandbox import ChatSandbox

HELLO = [{"role": "user", "content": "Hello"}]
DOUBLE = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = GROW %}{% endfor %}{{ USE }}"


def double(start: str, grow: str, use: str = "1") -> str:
    return DOUBLE.replace("START", start).replace("GROW", grow).replace("USE", use)


GROWING = {
    "times": "{{ 'a' * 10 ** 9 }}",
    "times, the other way": "{{ 1000000000 * 'a' }}",
    "times, a list": "{{ [0] * 1000000000 }}",
    "times, a number": double("3", "ns.x * ns.x"),
    "power": "{{ 9 ** 9 ** 9 }}",
    "power of a fraction": "{{ 2.0 ** 100000 }}",
    "plus": double("'a'", "ns.x + ns.x"),
    "tilde": double("'a'", "ns.x ~ ns.x"),
    "plus, lists": double("['a']", "ns.x + ns.x"),
    "a list in a list": double("['a']", "[ns.x, ns.x]", "ns.x"),
    "a tuple in a tuple": double("('a', 1)", "(ns.x, ns.x)", "{ns.x: 1}"),
    "a dict in a dict": double("{}", "{1: ns.x, 2: ns.x}", "ns.x == ns.x"),
    "a dict by name": double("{}", "dict(a=ns.x, b=ns.x)"),
    "arguments": "{% set ns = namespace(x=(1, 2)) %}{% macro f() %}{% set ns.x = varargs %}{% endmacro %}"
    "{% for i in range(60) %}{{ f(ns.x, ns.x) }}{% endfor %}",
    "a captured block": "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
    "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "a captured loop": "{% set y %}{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}{% endset %}",
    "range": "{{ range(1000000000) | list }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "center by name": "{{ 'a' | center(width=1000000000) }}",
    "center of each": "{{ ['a'] | map('center', 1000000000) | list }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "expandtabs": "{{ ('\t' * 100000).expandtabs(1000000) }}",
    "indent": "{{ ('\n' * 100000) | indent(100000) }}",
    "replace": "{% set b = 'a' * 100000 %}{{ b | replace('a', b) }}",
    "str.replace": "{% set b = 'a' * 100000 %}{{ b.replace('a', b) }}",
    "join": "{% set b = 'a' * 100000 %}{{ b | join(b) }}",
    "str.join": "{% set b = 'a' * 100000 %}{{ b.join(b) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent, computed": "{{ '%*d' % (1000000000, 1) }}",
    "format": "{{ '%1000000000d' | format(1) }}",
    "str.format": "{{ '{:1000000000}'.format(1) }}",
    "str.format, computed": "{{ '{:{}}'.format(1, '1000000000') }}",
    "str.format, repeated": "{% set b = 'a' * 100000 %}{{ ('{0}' * 100000).format(b) }}",
    "a date": "{{ strftime_now('%1000000000d') }}",
    "many large values": "{% set ns = namespace(x='') %}{% for i in range(99999) %}"
    "{% set ns.x = 'a' * 900000 %}{% endfor %}",
}

REACHING = {
    "a class": "{{ ''.__class__.__mro__ }}",
    "a function's module": "{{ raise_exception.__globals__['re'] }}",
    "a changed list": "{{ messages.append(1) }}",
    "a private name": "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "a private name at once": "{{ namespace(__html__=1) }}",
    "a file": "{% include '/etc/hostname' %}",
    "format's attributes": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "lipsum": "{{ lipsum(n=100) }}",
}


@pytest.mark.parametrize("template", GROWING.values(), ids=GROWING.keys())
def test_what_would_grow_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="chat template") as caught:
        render_chat(template, HELLO, seconds=20)
    assert isinstance(caught.value.__cause__, SecurityError)


@pytest.mark.parametrize("template", REACHING.values(), ids=REACHING.keys())
def test_what_reaches_out_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="could not write"):
        render_chat(template, HELLO)


def test_ordinary_work_goes_through() -> None:
    template = (
        "{% set ns = namespace(all=[], text='') %}"
        "{% for m in messages %}{% set ns.all = ns.all + [m] %}{% set ns.text = ns.text ~ m.content %}{% endfor %}"
        "{{ ns.all | length }} {{ ns.text | length }} {{ ns.text[:3] | replace('l', 'LL') | center(9) }}"
    )
    messages = [{"role": "user", "content": "hello " * 30}] * 300
    assert render_chat(template, messages, seconds=20) == "300 54000 " + "heLL".center(9)


def test_a_date_is_written() -> None:
    assert len(render_chat("{{ strftime_now('%d %b %Y, 100%%') }}", HELLO)) == len("26 Jul 2024, 100%")


def test_a_namespace_is_not_written_out() -> None:
    assert render_chat("{{ namespace(a=1) }}", HELLO) == "<namespace>"


def test_every_bound_grows_with_the_size() -> None:
    template = "{{ 'a' * 100 }}"
    assert ChatSandbox(100).from_string(template).render() == "a" * 100
    with pytest.raises(SecurityError):
        ChatSandbox(99).from_string(template).render()
