"""Public names: sorted, complete, importable, documented."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

import unspool as us
from unspool.decode.spec import TECHNIQUES

LAZY = (us, us.decode, us.evaluate, us.diagnose)


def in_order(names):
    """CONSTANTS, then Classes, then functions, each alphabetically."""
    rank = lambda name: 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2  # noqa: E731
    return sorted(names, key=lambda name: (rank(name), name))


def exported(source):
    """`__all__` of a module's source, or None; and the names that the source binds."""
    tree, names, bound = ast.parse(source), None, set()
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                names = ast.literal_eval(value)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                bound.add(name)
            case ast.Import(names=found) | ast.ImportFrom(names=found):
                bound |= {(alias.asname or alias.name) for alias in found}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                bound |= for_checkers(node)
    return names, bound


def for_checkers(node):
    """The names that a block of imports for type checkers binds."""
    return {alias.asname or alias.name for each in node.body for alias in each.names}


def shadowed(package):
    """Exported names that are also names of modules of the package."""
    return sorted(set(package.__all__) & {it.name for it in pkgutil.iter_modules(package.__path__)})


def is_documented(thing):
    generated = None
    if inspect.isclass(thing) and hasattr(thing, "__dataclass_fields__"):
        # The docstring that @dataclass generates.
        generated = thing.__name__ + str(inspect.signature(thing)).replace(" -> None", "")
    return bool((thing.__doc__ or "").strip()) and thing.__doc__ != generated


def test_all_is_sorted_and_has_no_name_twice():
    assert us.__all__ == in_order(set(us.__all__))


@pytest.mark.parametrize("name", us.__all__)
def test_every_public_name_is_importable_and_documented(name):
    thing = getattr(us, name)
    assert callable(thing) or isinstance(thing, types.ModuleType)
    assert is_documented(thing), f"unspool.{name} has no docstring"


def test_every_technique_that_parse_knows_is_public():
    assert {name: getattr(us.decode, name) for name in TECHNIQUES} == TECHNIQUES


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_see_the_public_names(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    (checked,) = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    names = [a for each in checked.body for a in each.names]
    assert [a.name for a in names if a.asname != a.name and a.name != "*"] == []
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("package", [us.decode, us.evaluate, us.diagnose])
def test_a_package_exports_its_names_even_after_all_its_modules_are_imported(package):
    for file in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{file.name}")
    assert shadowed(package) == []
    for name in package.__all__:
        thing = getattr(package, name)
        assert callable(thing), name
        assert is_documented(thing), f"{package.__name__}.{name} has no docstring"


def test_a_shadowed_name_is_found(tree):
    package = types.SimpleNamespace(__all__=["found", "lost"], __path__=[str(tree({"lost.py": ""}))])
    assert shadowed(package) == ["lost"]


def test_subpackages_are_attributes_without_an_import():
    code = "import unspool as us; print(us.models.TransformerConfig.__name__, us.basis.BasisTest.__name__)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["TransformerConfig", "BasisTest"]


def test_few_names_are_at_the_top():
    assert len(us.__all__) <= 65


@pytest.mark.parametrize("package", LAZY)
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"{package.__name__}.*Samle"):
        package.Samle  # noqa: B018


def test_packages_export_bound_names_in_order(root):
    wrong = []
    for path in (root / "src/unspool").rglob("*/__init__.py"):
        names, bound = exported(path.read_text(encoding="utf-8"))
        if names is not None and (names != in_order(set(names)) or not set(names) <= bound):
            wrong.append(path.parent.name)
    assert wrong == []


def test_every_package_has_a_docstring(root):
    inits = (root / "src/unspool").rglob("__init__.py")
    silent = [p.parent.name for p in inits if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert silent == []


def test_wrong_order_is_found():
    assert in_order(["b", "A", "a", "CONST", "B"]) == ["CONST", "A", "B", "a", "b"]
    assert exported('from x import A\n__all__ = ["A", "B"]') == (["A", "B"], {"A"})


def test_a_missing_docstring_is_found():
    from dataclasses import dataclass

    @dataclass
    class Undocumented:
        x: int

    @dataclass
    class Documented:
        """A documented class."""

        x: int

    assert not is_documented(Undocumented)
    assert is_documented(Documented)
    assert not is_documented(lambda: 0)


def test_project_and_package_have_the_same_version(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == us.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", us.__version__)
