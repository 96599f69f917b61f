import ast
import sys
from types import SimpleNamespace

import pytest

from unspool.lab import dependencies as module
from unspool.lab.claims import CLAIMS
from unspool.lab.dependencies import code_version, dependencies, fingerprint

FILES = {
    "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.decode.beam import Beam as Beam\n",
    "decode/__init__.py": "",
    "decode/beam.py": "from pack.decode.step import best\n\nclass Beam:\n    pass\n",
    "decode/step.py": "def best():\n    return 1\n",
    "decode/other.py": "x = 1\n",
    "lab/claims/coins.py": """import pack as us
from pack.decode.other import x

SIZE = 3

def helper():
    return SIZE + x

@claim("A coin falls.")
def tossed(seed):
    return us.Beam(), helper()
""",
}


@pytest.fixture
def package(coin, tmp_path, monkeypatch):
    """A package whose claim uses a beam: (fingerprint, write)."""
    root = tmp_path / "pack"

    def write(name, text):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    for name, text in FILES.items():
        write(name, text)
    own = SimpleNamespace(__file__=str(root / "lab/claims/coins.py"))
    monkeypatch.setitem(sys.modules, coin.measure.__module__, own)
    monkeypatch.setattr(module, "PACKAGE", root)
    caches = (module._parse, module._module_imports, module._lazy_names, module._module_fingerprint)

    def version():
        for it in caches:
            it.cache_clear()
        return code_version(coin)

    yield version, write
    for it in caches:
        it.cache_clear()


def test_lazy_names_and_imports_of_imports_are_followed(package, coin):
    package[0]()
    modules = {"pack", "pack.decode", "pack.decode.beam", "pack.decode.other", "pack.decode.step"}
    assert dependencies(coin)[1] == modules


@pytest.mark.parametrize(
    ("name", "old", "new", "changes"),
    [
        ("decode/step.py", "return 1", "return 2", True),
        ("decode/beam.py", "pass", "width = 4", True),
        ("decode/other.py", "x = 1", "x = 2", True),
        ("lab/claims/coins.py", "SIZE = 3", "SIZE = 4", True),
        ("lab/claims/coins.py", "return SIZE", "return 1 + SIZE", True),
        ("lab/claims/coins.py", "A coin falls.", "A coin lands.", False),
        ("decode/step.py", "    return 1", "    '''Say one.'''\n    return 1  # not two", False),
    ],
)
def test_the_fingerprint_changes_with_code_that_is_used_and_not_with_prose(name, old, new, changes, package):
    version, write = package
    before = version()
    assert old in FILES[name]
    write(name, FILES[name].replace(old, new))
    assert (version() != before) == changes


def test_a_syntax_tree_without_docstrings():
    one, other = (
        ast.parse(text) for text in ('def f(x):\n    "Say x."\n    return x', "def f(x): return (x)")
    )
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(ast.parse("def f(x): return -x"))
    assert fingerprint(ast.parse("x = 0")) != fingerprint(ast.parse("x = None"))


def test_claims_depend_on_what_they_measure():
    needs = {
        "second_sense": "unspool.heads.kerbs_kernel",
        "basis_aware_keeps": "unspool.basis.basis_test",
        "degeneration": "unspool.decode.transforms.nucleus",
        "exposure_bias": "unspool.diagnose.exposure_bias",
        "attention_losses": "unspool.lab.small_models",
    }
    for claim in CLAIMS:
        modules = dependencies(claim)[1]
        assert needs.get(claim.name, "unspool") in modules
        assert not any(it.startswith(("unspool.cli", "unspool.serve")) for it in modules)
    assert len(code_version(CLAIMS[0])) == 12
