from dataclasses import replace

import pytest

from unspool.lab import results
from unspool.lab.registry import digest
from unspool.lab.results import Result


@pytest.fixture
def result(coin):
    plan, code = digest(coin.plan()), results.code_version(coin)
    return Result("coin", 1, False, plan, code, {"heads": 0.5, "by toss": [0.0, 1.0]}, 1.5)


def test_a_result_is_written_and_read(coin, result, tmp_path):
    assert results.read(tmp_path, coin, 1, False) is None
    results.write(tmp_path, result)
    assert results.read(tmp_path, coin, 1, False) == result
    assert results.read(tmp_path, coin, 2, False) is None
    assert results.read(tmp_path, coin, 1, True) is None


def test_other_code_has_other_results(coin, result, tmp_path, monkeypatch):
    results.write(tmp_path, result)
    monkeypatch.setattr(results, "code_version", lambda claim: "another")
    assert results.read(tmp_path, coin, 1, False) is None
    assert results.read(tmp_path, coin, 1, False, older=True) == result


def test_another_plan_has_other_results(coin, result, tmp_path):
    results.write(tmp_path, result)
    assert results.read(tmp_path, replace(coin, matters=0.2), 1, False) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"claim": "coin"}', "\x00"])
def test_a_damaged_file_warns_and_is_ignored(damage, coin, result, tmp_path):
    results.write(tmp_path, result).write_text(damage)
    with pytest.warns(match="is damaged"):
        assert results.read(tmp_path, coin, 1, False) is None


@pytest.mark.parametrize("number", [float("nan"), float("inf"), "1", True, [0.0, float("nan")]])
def test_nan_raises(number, coin, result, tmp_path):
    with pytest.raises(ValueError, match=r"coin, seed 1: heads is .* not a finite number"):
        results.write(tmp_path, replace(result, numbers={"heads": number}))
    assert list(tmp_path.iterdir()) == []


def test_results_are_in_the_cache_or_the_chosen_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path))
    assert results.results_folder() == tmp_path / "lab"
    assert results.results_folder(tmp_path / "x") == tmp_path / "x"
