import importlib.metadata

import pytest

from unspool.integrations.loading import LLAMA_CPP, TRANSFORMERS, OptionalPackage, _release


def test_what_is_there_is_given():
    assert TRANSFORMERS.imported("this").__name__ == "transformers"


def test_what_is_missing_is_named_with_the_extra_that_brings_it():
    missing = OptionalPackage("no_such_module", "no-such-package", (1,), "llama-cpp")
    with pytest.raises(
        ModuleNotFoundError, match=r"this needs no-such-package: pip install 'unspool\[llama-cpp\]'"
    ):
        missing.imported("this")


def test_what_is_too_old_is_named_with_both_versions(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.57.1")
    with pytest.raises(ImportError, match=r"transformers 5\.5 or later, and 4\.57\.1 is installed"):
        TRANSFORMERS.imported("this")


def test_the_fault_of_another_module_is_its_own(tmp_path, monkeypatch):
    (tmp_path / "needs_another.py").write_text("import a_third_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_third_that_is_missing"):
        OptionalPackage("needs_another", "needs-another", (1,), "x").imported("this")


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("5.1.0rc1", (5, 1, 0)), ("0.3.16", (0, 3, 16)), ("5.0.0.dev0", (5, 0, 0)), ("x", ())],
)
def test_versions_are_compared_by_their_numbers(version, numbers):
    assert _release(version) == numbers
    assert _release("0.3.9") < LLAMA_CPP.least <= _release("0.3.10")
