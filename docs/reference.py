"""The recipe reference in docs/training.md, generated from the dataclasses of recipes.

It needs only the standard library and does not import the package: names are followed through the source to
their definitions. A field without a docstring and a type without a description are errors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BEGIN, FINISH = "<!-- written by `make docs` -->", "<!-- up to here -->"
NESTED = {
    "data": {
        "[data] language": ("data.known_languages", "LANGUAGES"),
        "[data] task": ("data.known_languages.tasks", "TASKS"),
    },
    "model": {"[model] from": ("training.recipe", "Pretrained"), "[model] lora": ("models.lora", "LoRA")},
}
"""Tables inside of a section, which follow it."""
INSTEAD = {"model": None, "seed": None, "auxiliary": ("objectives", "AuxiliarySettings")}
"""Sections without a table of kinds: [model] has its own page, [[auxiliary]] has the kinds of [objective]."""
MAX_DEFAULT_LENGTH, NOT_SHOWN = 60, "…"
"""A longer or computed default is described by its docstring."""
TYPES = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", "dict": "table"}


@dataclass(frozen=True)
class Key:
    """One field of a dataclass."""

    name: str
    type: str
    default: str | None
    """In TOML, "" for None; None if the key is required."""
    description: str


class Source:
    """The package's source; it follows names to their definitions."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "src/unspool"
        self._trees: dict[str, ast.Module] = {}

    def find(self, module: str, name: str) -> tuple[str, ast.stmt]:
        """The module that defines `name`, as imported in `module`, and the definition."""
        body = self._tree(module).body
        lazy = [it for node in body if isinstance(node, ast.If) for it in node.body]  # if TYPE_CHECKING
        for node in [*body, *lazy]:
            match node:
                case ast.ClassDef(name=found) if found == name:
                    return module, node
                case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                    return module, node
                case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                    return module, node
                case ast.ImportFrom(module=str(origin), names=names) if origin.startswith("unspool."):
                    if name in {each.asname or each.name for each in names}:
                        return self.find(origin.removeprefix("unspool."), name)
        raise LookupError(f"{module} does not define {name}")

    def kinds(self, module: str, name: str) -> dict[str, str]:
        """Kind → name of its dataclass, from a literal dict; {"": name} for a dataclass."""
        _, node = self.find(module, name)
        if isinstance(node, ast.ClassDef):
            return {"": name}
        assert isinstance(node, ast.AnnAssign)
        assert isinstance(node.value, ast.Dict)
        keys = [ast.literal_eval(key) for key in node.value.keys if key is not None]
        return dict(zip(keys, (ast.unparse(value) for value in node.value.values), strict=True))

    def family(self, module: str, name: str) -> list[tuple[str, ast.ClassDef]]:
        """The base classes of this package, then the class."""
        where, node = self.find(module, name)
        assert isinstance(node, ast.ClassDef)
        named = (ast.unparse(base).partition("[")[0] for base in node.bases)
        bases = [base for base in named if base not in ("ABC", "Generic", "Protocol")]
        return [*(each for base in bases for each in self.family(where, base)), (where, node)]

    def keys(self, module: str, node: ast.ClassDef) -> list[Key]:
        """The class's own fields."""
        found = []
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            match field:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=hint, value=value):
                    if name.startswith("_") or "ClassVar" in ast.unparse(hint):
                        continue
                    match after:
                        case ast.Expr(value=ast.Constant(value=str(docstring))):
                            default = None if value is None else self._default(module, value)
                            found.append(
                                Key(
                                    name.removesuffix("_"),
                                    self._type(module, hint),
                                    default,
                                    " ".join(docstring.split()),
                                )
                            )
                        case _:
                            raise ValueError(f"{module}.{node.name}.{name} has no docstring")
        return found

    def _tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            path = self._folder / module.replace(".", "/")
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            self._trees[module] = ast.parse(path.read_text(encoding="utf-8"))
        return self._trees[module]

    def _default(self, module: str, value: ast.expr) -> str:
        match value:
            case ast.Call(func=ast.Name(id="integer" | "number"), args=[default]):
                return self._default(module, default)
            case ast.Call(keywords=[ast.keyword(arg="default_factory", value=ast.Lambda(body=body))]):
                value = body
            case ast.Name(id=name):
                _, node = self.find(module, name)
                assert isinstance(node, ast.Assign)
                value = node.value
        try:
            text = _toml(ast.literal_eval(value))
        except ValueError:  # it is computed
            return NOT_SHOWN
        return text if len(text) <= MAX_DEFAULT_LENGTH else NOT_SHOWN

    def _type(self, module: str, hint: ast.expr) -> str:
        match hint:
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return " or ".join(filter(None, (self._type(module, left), self._type(module, right))))
            case ast.Constant(value=None):
                return ""
            case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
                values = choices.elts if isinstance(choices, ast.Tuple) else [choices]
                return " or ".join(f"`{_toml(ast.literal_eval(value))}`" for value in values)
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[each, _])):
                return f"list of {self._type(module, each)}s"
            case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name) if name in TYPES:
                return TYPES[name]
            case ast.Name(id=name):
                where, node = self.find(module, name)
                if isinstance(node, ast.ClassDef):
                    return "table"
                assert isinstance(node, ast.Assign)
                return self._type(where, node.value)
        raise ValueError(f"{module}: add a description for the type {ast.unparse(hint)}")


def _toml(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case dict():
            return f"{{{', '.join(f'{key} = {_toml(each)}' for key, each in value.items())}}}"
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def _table(keys: list[Key]) -> str:
    lines = ["| key | value | default | |", "|---|---|---|---|"]
    for key in keys:
        default = "required" if key.default is None else f"`{key.default}`" if key.default else "none"
        text = key.description.replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{key.name}` | {key.type} | {default} | {text} |")
    return "\n".join([*lines, ""])


def sections(source: Source) -> dict[str, tuple[str, str]]:
    """Title → module and name of the dataclass or of the dict of kinds, as training/recipe.py lists them."""
    recipe = "training.recipe"
    _, node = source.find(recipe, "SECTIONS")
    assert isinstance(node, ast.Assign)
    assert isinstance(node.value, ast.Tuple)
    found: dict[str, tuple[str, str]] = {}
    for row in node.value.elts:
        assert isinstance(row, ast.Call)
        name, is_list = ast.literal_eval(row.args[0]), any(it.arg == "is_list" for it in row.keywords)
        place = INSTEAD.get(name, (recipe, ast.unparse(row.args[1])))
        if place is not None:
            found[f"[[{name}]]" if is_list else f"[{name}]"] = place
        found |= NESTED.get(name, {})
    return found


def reference(root: Path) -> str:
    """Every section of a recipe except [model], with its kinds and keys."""
    source, parts = Source(root), [BEGIN, ""]
    for section, (module, name) in sections(source).items():
        where, _ = source.find(module, name)
        families = {kind: source.family(where, cls) for kind, cls in source.kinds(module, name).items()}
        parts.append(f"### `{section}`\n")
        for base in _shared(families.values()):
            kinds = [f"`{kind}`" for kind, family in families.items() if base in family]
            if keys := source.keys(*base):
                parts += [f"{', '.join(kinds)} have:\n", _table(keys)]
        for kind, family in families.items():
            sentence = " ".join((ast.get_docstring(family[-1][1]) or "").split("\n\n")[0].split())
            keys = source.keys(*family[-1])
            parts.append(f'**`kind = "{kind}"`** {sentence}\n' if kind else f"{sentence}\n")
            parts += [_table(keys)] if keys else []
    return "\n".join([*parts, FINISH])


def _shared(families: Iterable[list[tuple[str, ast.ClassDef]]]) -> list[tuple[str, ast.ClassDef]]:
    """The base classes, each once."""
    return list(dict.fromkeys(base for family in families for base in family[:-1]))


def training_page(root: Path) -> str:
    """The text of docs/training.md with a current reference."""
    page = (root / "docs/training.md").read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(FINISH)
    if not begin or not end:
        raise ValueError(f"docs/training.md lacks the marks of the reference: {BEGIN} … {FINISH}")
    return before + reference(root) + after
