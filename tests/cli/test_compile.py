import pytest

from unspool.cli import compile as verb
from unspool.nn.compiled import rnn_engine, transformer_engine


def test_steps_are_ready_behind_it(unspool):
    status, out, _ = unspool("compile")
    assert (status, out) == (0, "")
    assert transformer_engine.step.ready
    assert rnn_engine.step.ready


def test_a_second_time_says_nothing(unspool):
    unspool("compile")
    assert unspool("compile") == (0, "", "")


def test_without_numba_it_says_what_to_install(unspool, monkeypatch):
    monkeypatch.setattr(verb, "find_spec", lambda name: None)
    status, _, err = unspool("compile")
    assert status == 2
    assert "pip install 'unspool[fast]'" in err


@pytest.mark.parametrize("wrong", ["smollm2", "--all"])
def test_it_takes_nothing(unspool, wrong):
    assert unspool("compile", wrong)[0] == 2
