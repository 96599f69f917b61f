import pytest

import unspool as us
from unspool import config
from unspool.models.loading.model_names import BUILTIN, PACKAGES, ModelPackage, default_model


@pytest.fixture
def without_packages(monkeypatch):
    monkeypatch.setitem(PACKAGES, config.MODEL, ModelPackage("no_such_module", "*.gguf", "pip install it"))


def test_the_first_choice_is_taken_where_it_is_installed():
    assert default_model() == config.MODEL == "smollm2"


def test_without_it_there_is_a_model_that_is_always_there(without_packages):
    assert default_model() == config.SECOND_MODEL
    assert config.SECOND_MODEL in BUILTIN


def test_load_without_a_name_follows_the_rule(without_packages):
    out = us.generate(us.load(), "In the beginning", us.Greedy(), max_new_tokens=8)
    assert out.text
    assert us.load().config == us.load(None).config == us.load(config.SECOND_MODEL).config
