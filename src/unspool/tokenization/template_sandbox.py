"""Script of the helper process that renders chat templates (started by `helper_process`).

A model file may be hostile, and its template is a program. Three layers confine it:

    jinja2's immutable sandbox    no access to Python internals; arguments cannot be modified
    process limits                bounded memory; no file or connection can be opened
    watchdog                      ends the process when the time is up

Each line of standard input requests one rendering and gets one line of standard output, both JSON. The script
imports no other module of this package, so that it starts quickly.
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
"""Address space of the process, on systems that support the limit (Linux). Python takes a tenth of it."""


@lru_cache(maxsize=1)
def chat_sandbox() -> ImmutableSandboxedEnvironment:
    """The environment that compiles chat templates, as Hugging Face does."""
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    sandbox.filters["tojson"] = _tojson
    sandbox.globals["raise_exception"] = _raise_exception
    sandbox.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return sandbox


def render(template: str, variables: Mapping[str, Any], size: int) -> dict[str, str]:
    """{"text": …} on success, else {"syntax": …} or {"error": …}."""
    try:
        return {"text": _join(_compiled(template).generate(variables), size)}
    except TemplateSyntaxError as error:
        return {"syntax": f"line {error.lineno}: {error.message}"}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except Exception as error:
        return {"error": str(error)[:1000] or type(error).__name__}


def confine() -> None:
    """Limit memory and forbid open files, as far as the system supports it."""
    with suppress(ImportError):  # missing on Windows
        import resource

        for name, limit in (("RLIMIT_AS", MAX_MEMORY_BYTES), ("RLIMIT_NOFILE", 0), ("RLIMIT_CORE", 0)):
            with suppress(ValueError, OSError):  # macOS rejects some
                resource.setrlimit(getattr(resource, name), (limit, limit))


def serve() -> None:
    """Reply to requests until standard input closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    # Trigger lazy imports before the limits apply.
    for template in ("{{ strftime_now('%d %b %Y') }}", "{{ raise_exception('no') }}"):
        render(template, {}, 100)
    confine()
    for line in sys.stdin:
        request = json.loads(line)
        # On timeout faulthandler prints "Timeout" first and ends the process.
        faulthandler.dump_traceback_later(request.pop("seconds"), exit=True, file=sys.stdout)
        reply = json.dumps(render(**request))
        faulthandler.cancel_dump_traceback_later()
        print(reply, flush=True)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    return chat_sandbox().from_string(template)


def _join(pieces: Iterable[str], size: int) -> str:
    written, length = [], 0
    for piece in pieces:
        written.append(piece)
        length += len(piece)
        if length > size:
            raise TemplateError(f"it writes more than {size:,} characters")
    return "".join(written)


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} marks training targets; rendering keeps its body."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's filter, do not escape <, > and &: the output is not HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


if __name__ == "__main__":
    serve()
