import json

import pytest

from unspool.lab.results import Finding, findings, findings_of_file, spread
from unspool.lab.running import run


@pytest.fixture
def finding(coin, tmp_path):
    list(run([coin], [1, 2, 3], folder=tmp_path / "results"))
    (found,) = findings([coin], [1, 2, 3], folder=tmp_path / "results")
    return found


def test_numbers_have_a_spread_over_seeds(finding):
    assert finding.verdict == "mixed"
    assert finding.parts == [("heads > 0.45", 3, 3), ("heads > 0.55", 2, 3)]
    heads = finding.spreads["heads"]
    assert (round(heads.mean, 9), round(heads.deviation, 9)) == (0.6, 0.1)
    assert (heads.least, round(heads.most, 9)) == (0.5, 0.7)
    assert str(heads) == "0.6 ± 0.1"
    assert "by toss" not in finding.spreads  # a curve is drawn


def test_one_seed_has_no_spread():
    assert str(spread([0.123456])) == "0.1235"


def test_a_finding_without_results_is_empty(coin, tmp_path):
    (found,) = findings([coin], [1], folder=tmp_path / "nowhere")
    assert (found.verdict, found.spreads, found.runs) == ("not run", {}, [])


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
