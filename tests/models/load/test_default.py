import pytest

import unspool as us
from unspool import defaults
from unspool.models.load.builtin import BUILTIN
from unspool.models.load.default import default_model
from unspool.models.load.packages import PACKAGES, ModelPackage


@pytest.fixture
def without_packages(monkeypatch):
    monkeypatch.setitem(PACKAGES, defaults.MODEL, ModelPackage("no_such_module", "*.gguf", "pip install it"))


def test_the_first_choice_is_taken_where_it_is_installed():
    assert default_model() == defaults.MODEL == "smollm2"


def test_without_it_there_is_a_model_that_is_always_there(without_packages):
    assert default_model() == defaults.SECOND_MODEL
    assert defaults.SECOND_MODEL in BUILTIN


def test_load_without_a_name_follows_the_rule(without_packages):
    out = us.generate(us.load(), "In the beginning", us.Greedy(), max_new_tokens=8)
    assert out.text
    assert us.load().config == us.load(None).config == us.load(defaults.SECOND_MODEL).config
