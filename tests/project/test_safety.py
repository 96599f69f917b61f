"""No source file runs code from data (pickle, torch.load, eval) or contains the path of a machine."""

import ast
import re

import pytest

# Packages that can turn a file into code.
CODE_FROM_DATA = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
MACHINE_PATH = re.compile(r"(?<![\w.<])/(?:work|root|home|tmp|opt|Users)/")


def dangers(source):
    """Parts of the source that could run code from data, and paths of a machine."""
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


def test_no_source_runs_code_from_data_or_names_a_machine(root):
    files = sorted((root / "src/unspool").rglob("*.py"))
    found = {str(path.relative_to(root)): dangers(path.read_text(encoding="utf-8")) for path in files}
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
def test_a_dangerous_call_is_found(source):
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
def test_harmless_code_is_allowed(source):
    assert dangers(source) == []


def test_no_test_folder_is_a_package(root):
    assert list((root / "tests").rglob("__init__.py")) == []
