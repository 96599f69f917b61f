import json
from dataclasses import asdict, replace

import pytest

from unspool.lab import results
from unspool.lab.registry import digest
from unspool.lab.report import markdown_page
from unspool.lab.results import (
    Finding,
    Result,
    confirm,
    copy_results,
    findings,
    findings_of_file,
    spread,
)
from unspool.lab.running import measure_once, run


@pytest.fixture
def finding(coin, tmp_path):
    list(run([coin], folder=tmp_path / "results"))
    (found,) = findings([coin], folder=tmp_path / "results")
    return found


def test_a_finding_has_an_effect_and_numbers_with_intervals(finding):
    assert finding.verdict == "supported"
    assert finding.effect.mean == pytest.approx(0.345)
    assert finding.effect.low > 0.3
    heads = finding.spreads["heads"]
    assert heads.mean == pytest.approx(11.05)
    # The standard deviation of 0.1 … 1.0 is 0.3028, and t₀.₉₇₅(9) = 2.262.
    assert heads.high - heads.mean == pytest.approx(2.262 * 0.3028 / 10**0.5, abs=1e-3)
    assert (round(heads.least, 9), round(heads.most, 9)) == (10.6, 11.5)
    assert list(finding.spreads) == ["heads"]  # a curve is drawn, and the effect is shown apart


def test_secondary_quantities_come_first(coin):
    claim = replace(coin, secondary=("b",))
    result = Result("coin", 101, False, digest(claim.plan()), "", {"a": 1.0, "b": 2.0}, 1.0)
    assert list(Finding(claim, (result,)).spreads) == ["b", "a"]


def test_one_seed_has_no_spread():
    assert str(spread([0.123456])) == "0.1235"


def test_a_finding_without_results_is_empty(coin, tmp_path):
    (found,) = findings([coin], [1], folder=tmp_path / "nowhere")
    assert (found.verdict, found.spreads, found.runs, found.effect) == ("not run", {}, [], None)
    assert not found.is_stale


def test_results_of_other_code_are_stale(finding, coin, tmp_path, monkeypatch):
    assert not finding.is_stale
    monkeypatch.setattr(results, "code_version", lambda claim: "another")
    assert finding.is_stale
    (found,) = findings([coin], folder=tmp_path / "results")
    assert (found.verdict, found.is_stale) == ("supported", True)


def test_results_of_another_plan_are_stale_and_decide_nothing(finding, coin):
    old = tuple(replace(it, numbers={"tails": 0.5}) for it in finding.results)
    found = Finding(replace(coin, matters=0.2), old)
    assert (found.is_stale, found.verdict, found.effect, found.spreads) == (True, "not run", None, {})
    assert "Not registered." in markdown_page([found])


def test_results_of_an_older_check_lack_numbers_and_decide_nothing(edge):
    old = Result("edge", 101, False, "an older plan", "", {"tails": 0.5}, 1.0)
    found = Finding(edge, (old,))
    assert (found.verdict, found.parts) == ("not run", [("there are few heads", 0, 0)])


@pytest.mark.parametrize(("probe", "is_stale"), [(0.31, False), (0.32, True)])
def test_a_quick_run_with_the_same_numbers_confirms_results_of_older_code(
    probe, is_stale, coin, tmp_path, monkeypatch
):
    old = [measure_once(coin, seed, False) for seed in coin.default_seeds(False)]
    old[0] = replace(old[0], probe={**old[0].probe, "effect": probe})
    found = Finding(coin, tuple(replace(it, code="old") for it in old))
    assert confirm(found, tmp_path).is_stale  # no quick run yet
    list(run([coin], folder=tmp_path, quick=True))
    assert confirm(found, tmp_path).is_stale == is_stale
    two_codes = replace(found, results=(*found.results[:-1], replace(found.results[-1], code="older")))
    assert confirm(two_codes, tmp_path).is_stale


def test_published_results_are_copied_as_older_ones(finding, coin, tmp_path):
    path = tmp_path / "lab.json"
    path.write_text(json.dumps({"claims": [finding.record()]}))
    copy_results(path, [coin], tmp_path / "new")
    (copied,) = findings([coin], folder=tmp_path / "new")
    assert copied == finding
    later = replace(finding.results[0], code="later", seconds=9.0)
    (tmp_path / "new" / "coin-full-seed101-x-later.json").write_text(json.dumps(asdict(later)))
    for file in (tmp_path / "new").glob(f"*-{finding.results[0].code}.json"):
        file.unlink()
    copy_results(path, [replace(coin, matters=0.2)], tmp_path / "new")
    (found,) = findings([replace(coin, matters=0.2)], folder=tmp_path / "new")
    assert found.results[0] == later


def test_a_quick_run_has_no_verdict(coin, tmp_path):
    list(run([coin], folder=tmp_path, quick=True))
    (found,) = findings([coin], folder=tmp_path, quick=True)
    assert (found.verdict, len(found.results)) == ("quick run", 1)


def test_the_parts_of_a_check(edge, tmp_path):
    list(run([edge], [101, 105], folder=tmp_path))
    (found,) = findings([edge], [101, 105], folder=tmp_path)
    assert (found.verdict, found.effect) == ("fails", None)
    assert found.parts == [("there are few heads", 1, 2)]


def test_a_record_is_judged_anew(finding, coin, tmp_path):
    path = tmp_path / "lab.json"
    path.write_text(json.dumps({"claims": [finding.record()]}))
    (again,) = findings_of_file(path, [coin])
    assert again == finding


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"claims": [{}]}', '{"claims": [{"name": "coin", "results": [1]}]}']
)
def test_another_file_raises(text, coin, tmp_path):
    path = tmp_path / "lab.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a report"):
        findings_of_file(path, [coin])


def test_a_finding_without_results_is_not_drawn(coin):
    assert Finding(coin, ()).record()["numbers"] == {}
