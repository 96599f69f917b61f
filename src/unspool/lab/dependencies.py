"""The code that a measurement depends on, and its fingerprint.

The code is the file of the function that measures, without decorators, which hold registered texts and
figures, and all modules of unspool that it uses, directly or through others. Names of lazy packages
(`us.generate`) are followed to the module that defines them. The fingerprint covers syntax trees without
docstrings: comments and prose do not change it.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from unspool.lab.claim import Experiment

PACKAGE = Path(__file__).resolve().parents[1]
DECIDES = "unspool.lab.claim"
"""Left out: verdicts are computed anew from the numbers whenever they are shown."""


def code_version(experiment: Experiment) -> str:
    """Return the fingerprint of the code of an experiment: 12 hexadecimal digits."""
    own, modules = dependencies(experiment)
    digest = hashlib.sha256(fingerprint(own).encode())
    for module in sorted(modules):
        digest.update(f"\n{module} {_module_fingerprint(_file(module))}".encode())
    return digest.hexdigest()[:12]


def dependencies(experiment: Experiment) -> tuple[ast.Module, set[str]]:
    """Return the experiment's own file without decorators, and the modules that it imports."""
    own = ast.parse(
        Path(str(sys.modules[experiment.measure.__module__].__file__)).read_text(encoding="utf-8")
    )
    for node in own.body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
    todo, modules = set(_imports(own.body, _bindings(own.body))) - {DECIDES}, set[str]()
    while todo:
        modules |= todo
        todo = {it for module in todo for it in _module_imports(_file(module))} - modules - {DECIDES}
    return own, modules


def _bindings(body: Iterable[ast.stmt]) -> dict[str, str]:
    """Return name → module for the imports of a file."""
    found: dict[str, str] = {}
    for node in body:
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _imports(statements: Iterable[ast.stmt], bindings: dict[str, str]) -> Iterator[str]:
    """Yield the modules that statements use: by imported names, attributes of packages, and own imports."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id in bindings:
                yield from _modules_of(bindings[node.id])
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in bindings:
                    yield from _modules_of(f"{bindings[node.value.id]}.{node.attr}")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for target in _bindings([node]).values():
                    yield from _modules_of(target)


def _modules_of(target: str) -> Iterator[str]:
    """Yield the modules in which a dotted name is found: `unspool.decode.Beam` is in decode.search.beam."""
    if target.split(".")[0] != PACKAGE.name:
        return
    parts = target.split(".")
    while parts and not _file(".".join(parts)).exists():
        parts.pop()
    module = ".".join(parts)
    for end in range(1, len(parts)):  # Python imports the packages around a module
        yield ".".join(parts[:end])
    yield module
    rest = target[len(module) + 1 :].split(".")[0]
    origin = _lazy_names(_file(module)).get(rest)
    if origin is not None:
        yield from _modules_of(f"{origin}.{rest}")


@cache
def _module_imports(path: Path) -> frozenset[str]:
    statements = [it for it in _parse(path).body if not _is_for_type_checkers(it)]
    return frozenset(_imports(statements, _bindings(statements)))


@cache
def _lazy_names(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in _parse(path).body if path.name == "__init__.py" else []:
        for statement in node.body if _is_for_type_checkers(node) and isinstance(node, ast.If) else []:
            if isinstance(statement, ast.ImportFrom):
                found |= {alias.asname or alias.name: str(statement.module) for alias in statement.names}
    return found


def _is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _file(module: str) -> Path:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _module_fingerprint(path: Path) -> str:
    return hashlib.sha256(fingerprint(_parse(path)).encode()).hexdigest()


def fingerprint(tree: ast.AST) -> str:
    """Return a syntax tree as text, without docstrings and positions, equal in all versions of Python."""
    out: list[str] = []
    _write(tree, out)
    return " ".join(out)


def _write(node: ast.AST, out: list[str]) -> None:
    out.append(f"{type(node).__name__}(")
    for name in node._fields:
        value = getattr(node, name, None)
        # An empty field says nothing, and newer versions of Python have more of them.
        if name in ("ctx", "kind") or value is None or value == []:
            continue
        out.append(name)
        if isinstance(value, list):
            for it in value:
                if not (name == "body" and _is_docstring(it)):
                    _write(it, out) if isinstance(it, ast.AST) else out.append(repr(it))
        elif isinstance(value, ast.AST):
            _write(value, out)
        else:
            out.append(repr(value))
    out.append(")")


def _is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
