"""Where a chat template runs: in jinja2's immutable sandbox, with a bound on everything that can grow.

A model file may come from anyone, and its template is a program. The sandbox keeps it from reaching Python;
the bounds keep a few characters ("a" * 10**9, a string or a list doubled forty times) from filling the
memory, or from starting one long operation. The clock is looked at in every round of a loop and at every
operator, filter and call, so that no nest of loops outlives its time.

The weight of a value (see `ledger`) is about its length when written out.

    one value       ≤ size           every +, *, ~, {{ … }}, captured block
    a list or dict  ≤ 4 · size       every literal and every argument of a call
    a call          ≤ 100 · size     the weight of its subject times the largest other argument
    all values      ≤ 256 · size     the sum of what operators and calls have made
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from string import Formatter
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from unspool.text.ledger import Ledger

_LARGEST_INT_BITS = 256
_MOST_SIGNS = 20_000
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)")
_WIDE_FIELD = re.compile(r"\d{5}|\{")
_DATED = re.compile(r"(?:[^%]|%[-_]?[a-zA-Z%]){0,200}")

# Filters that no chat needs, and of which some can take time that no limit would interrupt.
_LEFT_OUT = {
    "batch",
    "filesizeformat",
    "pprint",
    "round",
    "slice",
    "striptags",
    "urlize",
    "wordwrap",
    "xmlattr",
}

# Filters that turn their argument into text; the others pass values on as they are.
_WRITERS = {"capitalize", "center", "e", "escape", "forceescape", "indent", "join", "lower", "replace"}
_WRITERS |= {"safe", "string", "title", "tojson", "trim", "truncate", "upper", "urlencode", "wordcount"}


class ChatSandbox(ImmutableSandboxedEnvironment):
    """Compiles chat templates as Hugging Face does, and refuses what would grow beyond bounds."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, size: int) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], finalize=self._shown
        )
        self.size = size
        self._ledger = Ledger()
        self.concat = self._concat  # type: ignore[method-assign]
        kept = {name: do for name, do in self.filters.items() if name not in _LEFT_OUT} | {"tojson": _tojson}
        self.filters = {name: self._guarded(name, do) for name, do in kept.items()}
        self.filters |= {"format": self._format, "timed": self._timed, "weighed": self._weighed}
        del self.globals["lipsum"]
        self.globals["dict"] = self._dict
        self.globals["namespace"] = _PlainNamespace
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def write(self, template: Template, variables: Mapping[str, Any], seconds: float) -> str:
        """What a template of this sandbox writes; OutOfTimeError where it takes longer than `seconds`."""
        self._ledger.open(seconds)
        try:
            return self._concat(template.generate(variables))
        finally:
            self._ledger.open(math.inf)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator's result, where it stays small."""
        {"+": self._add, "*": self._times, "**": _power, "%": self._percent}[operator](left, right)
        return self._charged(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """A call's result, where the arguments let it stay small."""
        owner = getattr(__obj, "__self__", None)
        __self._check_call(owner if isinstance(owner, str) else "", [*args, *kwargs.values()])
        return __self._charged(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format`, refused where the text asks for wide fields."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def guarded(*args: Any, **kwargs: Any) -> str:
            if any(_WIDE_FIELD.search(spec or "") for _, _, spec, _ in Formatter().parse(value.__self__)):
                raise SecurityError("str.format with a wide or computed field is not allowed")
            self._check_call(value.__self__, [*args, *kwargs.values()])
            return wrapped(*args, **kwargs)

        return guarded

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        # Compiling takes time, too: as much as there are words and signs outside plain text.
        if sum(1 for _ in self.lex(source)) > _MOST_SIGNS:
            raise SecurityError(f"the chat template has more than {_MOST_SIGNS:,} words and signs")
        tree: nodes.Template = _Watched().visit(super()._parse(source, name, filename))
        return tree

    def _guarded(self, name: str, do: Callable[..., Any]) -> Callable[..., Any]:
        hidden = 1 if hasattr(do, "jinja_pass_arg") else 0

        @wraps(do)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            subject, *rest = (*args[hidden:], *kwargs.values())
            if name in _WRITERS:
                self._check_call(subject, rest)
            return self._charged(do(*args, **kwargs))

        return guarded

    def _check_call(self, subject: Any, rest: list[Any]) -> None:
        weight = self._ledger.weigh(subject)
        factor = max(map(self._factor, rest), default=1)
        arguments = weight + sum(map(self._ledger.weigh, rest))
        if arguments > 4 * self.size or max(1, weight) * factor > 100 * self.size:
            raise SecurityError("a call in the chat template would make too large a value")

    def _factor(self, value: Any) -> int:
        return abs(value) if isinstance(value, int) else self._ledger.weigh(value)

    def _add(self, left: Any, right: Any) -> None:
        if self._ledger.weigh(left) + self._ledger.weigh(right) > self.size:
            raise SecurityError("+ in the chat template would make too large a value")

    def _times(self, left: Any, right: Any) -> None:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if numbers and _bits(left) + _bits(right) <= _LARGEST_INT_BITS:
            return
        if numbers or self._factor(left) * self._factor(right) > self.size:
            raise SecurityError("* in the chat template would make too large a value")

    def _percent(self, left: Any, right: Any) -> None:
        if isinstance(left, str):
            if _WIDE_PERCENT.search(left):
                raise SecurityError("% with a wide or computed field is not allowed")
            self._check_call(left, [right])

    def _format(self, text: str, *args: Any, **kwargs: Any) -> Any:
        self._percent(text, kwargs or args)
        return self._charged(text % (kwargs or args))

    def _dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._weighed(dict(*args, **kwargs))

    def _weighed(self, value: Any) -> Any:
        if self._ledger.weigh(value) > 4 * self.size:
            raise SecurityError(f"the chat template made a list of more than {4 * self.size:,} characters")
        return value

    def _shown(self, value: Any) -> Any:
        if self._ledger.weigh(value) > self.size:
            raise SecurityError(f"the chat template wrote more than {self.size:,} characters")
        return value

    def _concat(self, pieces: Iterable[str]) -> str:
        held, length = [], 0
        for piece in pieces:
            held.append(piece)
            length += len(piece)
            if length > self.size:
                raise SecurityError(f"the chat template wrote more than {self.size:,} characters")
        return str(self._charged("".join(held)))

    def _timed(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self._ledger.tick()
            yield item

    def _charged(self, value: Any) -> Any:
        self._ledger.tick()
        # A slot of a list is a pointer, as large as eight ordinary characters.
        slot = 8 if isinstance(value, list) else 1
        self._ledger.made += slot * len(value) if isinstance(value, str | list) else 0
        if self._ledger.made > 256 * self.size:
            raise SecurityError("the chat template made too many large values")
        return value


class _Watched(NodeTransformer):
    """Rewrites what jinja2 would do unseen as what a sandbox can watch: a ~ b, literals, rounds of a loop."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        """{% for x in y|timed %}."""
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "timed")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        """a|string + b|string."""
        self.generic_visit(node)
        texts = [_filtered(part, "string") for part in node.nodes]
        joined: nodes.Expr = texts[0]
        for text in texts[1:]:
            joined = nodes.Add(joined, text, lineno=node.lineno)
        return joined

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        """[…]|weighed."""
        return _filtered(self.generic_visit(node), "weighed")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        """{…}|weighed."""
        return _filtered(self.generic_visit(node), "weighed")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        """(…)|weighed, but not in {% for a, b in … %}."""
        self.generic_visit(node)
        return _filtered(node, "weighed") if node.ctx == "load" else node


def _filtered(node: Any, name: str) -> nodes.Expr:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _Generation(Extension):
    """{% generation %} … {% endgeneration %} marks what a model learns to say; here only its body counts."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements inside."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _PlainNamespace(Namespace):
    """jinja2's namespace without names that Python itself looks up."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        Namespace.__init__(self, {})
        for name, value in dict(*rest, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"namespace.{name}: a chat template may not set names that begin with _")
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<namespace>"


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _power(left: Any, right: Any) -> None:
    if abs(right) * max(1, _bits(left)) > _LARGEST_INT_BITS:
        raise SecurityError("** in the chat template would make too large a number")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    if not _DATED.fullmatch(pattern):
        raise SecurityError(f"strftime_now: a chat template may not use the date format {pattern[:40]!r}")
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
