"""Where files stand, what they are called, and what none of them may contain."""

import ast
import re

import pytest

UNTESTED = {"__init__", "__main__"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "base"}
# Nothing that is read may run: these can turn a file into code.
CODE_FROM_DATA = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
MACHINE_PATH = re.compile(r"(?<![\w.<])/(?:work|root|home|tmp|opt|Users)/")


def modules(src):
    return sorted(path for path in src.rglob("*.py"))


def untested(src, tests):
    """Modules without a test function at their mirrored path."""
    found = []
    for path in modules(src):
        if path.stem in UNTESTED or only_promises(path.read_text(encoding="utf-8")):
            continue
        test = tests / path.relative_to(src).parent / f"test_{path.stem}.py"
        if not test.is_file() or not re.search(r"^def test_", test.read_text(encoding="utf-8"), re.MULTILINE):
            found.append(path.relative_to(src).as_posix())
    return found


def only_promises(source):
    """Whether a module has classes, and nothing in them ever runs: there is nothing to test."""
    tree = ast.parse(source)
    done = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not promised(node)]
    return not done and any(isinstance(node, ast.ClassDef) for node in tree.body)


def promised(function):
    """Whether a function has no body but its docstring and an ellipsis."""
    first, *rest = function.body
    said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return said and all(isinstance(it, ast.Expr) and ast.unparse(it) == "..." for it in rest)


def vague(src):
    return [path.name for path in (*modules(src), *src.rglob("*/")) if path.stem.strip("_") in VAGUE]


def dangers(source):
    """What in a module's source could run code from data, or names somebody's machine."""
    found = [match.group() for match in MACHINE_PATH.finditer(source)]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [name.name for name in names if name.name.split(".")[0] in CODE_FROM_DATA]
            case ast.ImportFrom(module=str(module), names=names):
                found += [module] if module.split(".")[0] in CODE_FROM_DATA else []
                found += ["torch.load" for name in names if (module, name.name) == ("torch", "load")]
            case ast.Attribute(value=ast.Name(id="torch"), attr="load"):
                found.append("torch.load")
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                found.append(name)
            case ast.keyword(arg="trust_remote_code" | "allow_pickle" as name, value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    found.append(name)
            case ast.Constant(value="trust_remote_code"):
                found.append("trust_remote_code")
    return found


def test_every_module_has_its_mirrored_test(root):
    assert untested(root / "src/unspool", root / "tests") == []


def test_a_missing_or_empty_test_is_noticed(tree):
    root = tree(
        {
            "src/room/__init__.py": "",
            "src/protocols/model.py": "class Model:\n    def step(self):\n        ...",
            "src/protocols/early.py": "class Model:\n    def step(self):\n        return 1",
            "src/room/tested.py": "",
            "src/room/untested.py": "",
            "src/room/empty.py": "",
            "tests/room/test_tested.py": "def test_it(): pass",
            "tests/room/test_empty.py": "# soon",
            "tests/test_untested.py": "def test_it(): pass",
        }
    )
    assert untested(root / "src", root / "tests") == [
        "protocols/early.py",
        "room/empty.py",
        "room/untested.py",
    ]


def test_names_say_something(root):
    assert vague(root / "src/unspool") == []


def test_a_vague_name_is_noticed(tree):
    root = tree({"a/utils.py": "", "helpers/x.py": "", "b/_common.py": "", "fine.py": ""})
    assert sorted(vague(root)) == ["_common.py", "helpers", "utils.py"]


def test_nothing_runs_code_from_data_or_names_a_machine(root):
    found = {path.name: dangers(path.read_text(encoding="utf-8")) for path in modules(root / "src/unspool")}
    assert {name: things for name, things in found.items() if things} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, dill as d",
        "from pickle import loads",
        "import torch\nx = torch.load('f')",
        "from torch import load",
        "eval('1')",
        "f(trust_remote_code=True)",
        "f(**{'trust_remote_code': True})",
        "np.load(f, allow_pickle=flag)",
        "path = '/work/data'",
        "# as in /home/me/x",
    ],
)
def test_a_danger_is_noticed(source):
    assert dangers(source)


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "# no pickle here",
        "np.load(f, allow_pickle=False)",
        "torch.no_grad()",
        "x = 'a/tmp/b'",
    ],
)
def test_what_is_no_danger_is_let_through(source):
    assert dangers(source) == []


def test_no_test_folder_is_a_package(root):
    assert list((root / "tests").rglob("__init__.py")) == []


NAMED_AFTER = ("cli", "claims")
"""Rooms whose files are named after what they call, or what they measure, elsewhere."""
ALIKE = {
    # Two rooms' sides of one thing: a technique by torch and compiled, ...
    *("best_tokens", "chain", "cross_attention", "mass_edge", "norms", "nuclei", "score_cuts", "int8"),
    # ... a conversation and how it is written; a technique that learns and that decodes; ...
    *("chat", "masked_diffusion"),
    # ... or what the room makes plain: settings of training and of a foreign file, what runs a request or a claim.
    *("settings", "running"),
}
"""Names that several files of the package may have."""


def repeated(src):
    names = [
        path.stem
        for path in modules(src)
        if path.stem not in UNTESTED and not set(NAMED_AFTER) & set(path.relative_to(src).parts)
    ]
    return {name for name in names if names.count(name) > 1}


def test_a_name_tells_one_file_unless_it_is_known_to_tell_two(root):
    assert repeated(root / "src/unspool") <= ALIKE


def test_a_name_that_stands_twice_is_noticed(tree):
    root = tree({"a/weights.py": "", "b/weights.py": "", "b/once.py": "", "cli/once.py": ""})
    assert repeated(root) == {"weights"}
