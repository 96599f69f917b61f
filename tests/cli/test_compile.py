import pytest

from unspool.cli import compile as verb, main
from unspool.engine import compiler_obstacle, sampling, transformer_engine, weight_table
from unspool.engine.weight_formats import FORMATS


def test_on_one_core_steps_are_ready_behind_it(unspool, monkeypatch):
    monkeypatch.setattr(verb, "available_cores", lambda: 1)
    status, out, _ = unspool("compile")
    assert (status, out) == (0, "")
    assert transformer_engine.step.ready
    assert sampling.draw_rows.ready


@pytest.mark.parametrize("first", [1, 2])
def test_a_second_time_says_nothing_on_any_number_of_cores(monkeypatch, capfd, first):
    monkeypatch.setattr(verb, "available_cores", lambda: first)
    assert main(["compile"]) == 0
    capfd.readouterr()
    monkeypatch.setattr(verb, "available_cores", lambda: 3 - first)
    assert main(["compile"]) == 0
    assert capfd.readouterr() == ("", "")


def test_every_format_is_in_one_of_the_parts(monkeypatch):
    compiled = []
    monkeypatch.setattr(weight_table, "product_address", compiled.append)
    for part in verb.TASKS[1:3]:
        part()
    assert sorted(kind.name for kind in compiled) == sorted(kind.name for kind in FORMATS)


@pytest.mark.filterwarnings("ignore:numba is not installed")
def test_without_numba_it_says_what_to_install(unspool, monkeypatch):
    monkeypatch.setattr("unspool.engine.find_spec", lambda name: None)
    compiler_obstacle.cache_clear()
    status, _, err = unspool("compile")
    compiler_obstacle.cache_clear()
    assert status == 2
    assert "pip install numba" in err


@pytest.mark.parametrize("wrong", ["smollm2", "--all"])
def test_it_takes_nothing(unspool, wrong):
    assert unspool("compile", wrong)[0] == 2
