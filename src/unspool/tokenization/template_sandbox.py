"""The program that renders chat templates, in a process of its own (`template_process` starts it).

A model file may come from anyone, and its template is a program. Three walls stand around it:

    jinja2's immutable sandbox    no way to Python, and nothing that it is given can be changed
    limits of the process         so many bytes of memory, and no file or connection can be opened
    a watchdog                    ends the process, whatever it is doing, when the time is over

Every line of standard input asks for one rendering, and gets one line of standard output, both JSON. Nothing
of ours is imported here, so that it starts quickly.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_MEMORY_BYTES = 1 << 29
"""Bytes of the whole process, where the system has such a limit (Linux has). A tenth of it is Python."""


class ChatSandbox(ImmutableSandboxedEnvironment):
    """Compiles chat templates as Hugging Face does."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _tojson
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now


def render(template: str, variables: Mapping[str, Any], size: int) -> dict[str, str]:
    """{"text": …}, or {"syntax": …} or {"error": …} where there is none."""
    try:
        return {"text": _join(_compiled(template).generate(variables), size)}
    except TemplateSyntaxError as error:
        return {"syntax": f"line {error.lineno}: {error.message}"}
    except MemoryError:
        return {"error": "it takes too much memory"}
    except Exception as error:
        return {"error": str(error)[:1000] or type(error).__name__}


def confine() -> None:
    """Take from this process what no template needs, as far as the system has such limits."""
    with suppress(ImportError):  # Windows has none
        import resource

        for name, most in (("RLIMIT_AS", MAX_MEMORY_BYTES), ("RLIMIT_NOFILE", 0), ("RLIMIT_CORE", 0)):
            with suppress(ValueError, OSError):  # macOS refuses some
                resource.setrlimit(getattr(resource, name), (most, most))


def serve() -> None:
    """Answer until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    # What is imported or read when it is first used must come before the limits.
    for template in ("{{ strftime_now('%d %b %Y') }}", "{{ raise_exception('no') }}"):
        render(template, {}, 100)
    confine()
    for line in sys.stdin:
        asked = json.loads(line)
        # Where time is over, the first line says "Timeout", and there is no process any more.
        faulthandler.dump_traceback_later(asked.pop("seconds"), exit=True, file=sys.stdout)
        answer = json.dumps(render(**asked))
        faulthandler.cancel_dump_traceback_later()
        print(answer, flush=True)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    return _sandbox().from_string(template)


@lru_cache(maxsize=1)
def _sandbox() -> ChatSandbox:
    return ChatSandbox()


def _join(pieces: Iterable[str], size: int) -> str:
    held, length = [], 0
    for piece in pieces:
        held.append(piece)
        length += len(piece)
        if length > size:
            raise TemplateError(f"it writes more than {size:,} characters")
    return "".join(held)


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} marks what a model learns to say; here only its body counts."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter this leaves <, > and & alone: a chat is no web page."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


if __name__ == "__main__":
    serve()
