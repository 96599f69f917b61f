import sys

import pytest
import torch
import transformers as tf

import unspool as us
from unspool.integrations.loading import load
from unspool.models.loading.config_reader import UnsupportedModelError


@pytest.fixture(scope="module")
def bloom(tmp_path_factory):
    """A folder of a family that there is no class of ours for."""
    folder = tmp_path_factory.mktemp("bloom")
    torch.manual_seed(0)
    tf.BloomForCausalLM(tf.BloomConfig(vocab_size=30, hidden_size=16, n_layer=1, n_head=2)).save_pretrained(
        folder
    )
    return folder


def test_our_own_models_are_run_by_ourselves():
    assert load("dates").engine in ("compiled", "torch")
    assert load("dates", engine="torch").engine == "torch"


def test_an_unknown_family_is_run_by_transformers_which_is_said(bloom):
    with pytest.warns(UserWarning, match=r"model_type 'bloom' is unknown.*So transformers runs it") as caught:
        model = us.load(bloom)
    assert caught[0].filename == __file__
    assert model.engine == "transformers"
    assert us.generate(model, [[5, 6], [7]], us.Beam(3), max_new_tokens=5)[0].tokens


def test_who_asks_for_transformers_is_not_told(bloom):
    assert us.load(bloom, engine="transformers").engine == "transformers"


def test_a_family_of_ours_may_be_run_by_transformers(tmp_path):
    torch.manual_seed(0)
    config = us.models.TransformerConfig(
        vocab_size=30, width=16, layers=1, heads=2, inner_width=24, context=32
    )
    us.save(config.build(), tmp_path / "it", format="huggingface")
    theirs, ours = us.load(tmp_path / "it", engine="transformers"), us.load(tmp_path / "it")
    assert (theirs.engine, ours.engine) == ("transformers", "compiled")
    texts = [us.generate(it, [4, 5], us.Greedy(), max_new_tokens=9).tokens for it in (theirs, ours)]
    assert texts[0] == texts[1]


def test_without_transformers_what_to_install_is_said(bloom, monkeypatch):
    monkeypatch.setattr("unspool.integrations.loading.find_spec", lambda name: None)
    with pytest.raises(UnsupportedModelError, match=r"model_type 'bloom' is unknown.*unspool\[huggingface\]"):
        us.load(bloom)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs transformers: pip install 'unspool\[huggingface\]'"
    ):
        us.load(bloom, engine="transformers")


def test_who_asks_for_an_engine_of_ours_gets_that_or_an_error(bloom):
    with pytest.raises(UnsupportedModelError, match="model_type 'bloom' is unknown"):
        us.load(bloom, engine="torch")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"engine": "tensorflow"},
            "engine 'tensorflow' is unknown: choose from torch, compiled, llama.cpp, transformers",
        ),
        ({"engine": "transformers"}, "reads Hugging Face folders and ids, and this is neither"),
        ({"engine": "transformers", "weights": "int8"}, "weights='int8' is for this package's own engines"),
    ],
)
def test_what_cannot_be_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        us.load("dates", **asked)
