import importlib.metadata
import sys

import pytest
import torch
import transformers as tf

import unspool as us
from unspool.integrations.loading import LLAMA_CPP, TRANSFORMERS, OptionalPackage, _release, load
from unspool.models.loading.config_reader import UnsupportedModelError


@pytest.fixture(scope="module")
def bloom(tmp_path_factory):
    """A folder of a family that this package does not implement."""
    folder = tmp_path_factory.mktemp("bloom")
    torch.manual_seed(0)
    tf.BloomForCausalLM(tf.BloomConfig(vocab_size=30, hidden_size=16, n_layer=1, n_head=2)).save_pretrained(
        folder
    )
    return folder


def test_native_models_run_on_native_engines():
    assert load("dates").engine in ("compiled", "torch")
    assert load("dates", engine="torch").engine == "torch"


def test_unknown_families_run_on_transformers_with_a_warning(bloom):
    with pytest.warns(
        UserWarning, match=r"model_type 'bloom' is unknown.*Running it on transformers"
    ) as caught:
        model = us.load(bloom)
    assert caught[0].filename == __file__
    assert model.engine == "transformers"
    assert us.generate(model, [[5, 6], [7]], us.Beam(3), max_new_tokens=5)[0].tokens


def test_engine_transformers_gives_no_warning(bloom):
    assert us.load(bloom, engine="transformers").engine == "transformers"


def test_native_families_can_run_on_transformers(tmp_path):
    torch.manual_seed(0)
    config = us.models.TransformerConfig(
        vocab_size=30, width=16, layers=1, heads=2, inner_width=24, context=32
    )
    us.save(config.build(), tmp_path / "it", format="huggingface")
    reference, ours = us.load(tmp_path / "it", engine="transformers"), us.load(tmp_path / "it")
    assert (reference.engine, ours.engine) == ("transformers", "compiled")
    texts = [us.generate(it, [4, 5], us.Greedy(), max_new_tokens=9).tokens for it in (reference, ours)]
    assert texts[0] == texts[1]


def test_missing_transformers_names_the_extra(bloom, monkeypatch):
    monkeypatch.setattr("unspool.integrations.loading.find_spec", lambda name: None)
    with pytest.raises(UnsupportedModelError, match=r"model_type 'bloom' is unknown.*unspool\[huggingface\]"):
        us.load(bloom)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs transformers: pip install 'unspool\[huggingface\]'"
    ):
        us.load(bloom, engine="transformers")


def test_native_engines_reject_unknown_families(bloom):
    with pytest.raises(UnsupportedModelError, match="model_type 'bloom' is unknown"):
        us.load(bloom, engine="torch")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"engine": "tensorflow"},
            "engine is 'tensorflow', but must be one of 'compiled', 'llama.cpp', 'torch', 'transformers'",
        ),
        ({"engine": "transformers"}, "needs a Hugging Face folder or Hub id"),
        ({"engine": "transformers", "weights": "int8"}, "weights='int8' needs this package's own engines"),
    ],
)
def test_conflicting_load_arguments_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        us.load("dates", **arguments)


def test_installed_packages_are_imported():
    assert TRANSFORMERS.require("this").__name__ == "transformers"


def test_missing_packages_name_the_extra():
    missing = OptionalPackage("no_such_module", "no-such-package", (1,), "llama-cpp")
    with pytest.raises(
        ModuleNotFoundError, match=r"this needs no-such-package: pip install 'unspool\[llama-cpp\]'"
    ):
        missing.require("this")


def test_old_packages_name_both_versions(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.57.1")
    with pytest.raises(ImportError, match=r"transformers 5\.5 or later, but 4\.57\.1 is installed"):
        TRANSFORMERS.require("this")


def test_import_errors_inside_a_package_are_passed_on(tmp_path, monkeypatch):
    (tmp_path / "needs_another.py").write_text("import a_third_that_is_missing")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_third_that_is_missing"):
        OptionalPackage("needs_another", "needs-another", (1,), "x").require("this")


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("5.1.0rc1", (5, 1, 0)), ("0.3.16", (0, 3, 16)), ("5.0.0.dev0", (5, 0, 0)), ("x", ())],
)
def test_versions_are_compared_by_release_numbers(version, numbers):
    assert _release(version) == numbers
    assert _release("0.3.9") < LLAMA_CPP.min_version <= _release("0.3.10")
