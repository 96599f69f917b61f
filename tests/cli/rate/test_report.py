import json

import pytest

from unspool.evaluate.rating import RatingSet


@pytest.fixture
def answered(ratings):
    found = RatingSet.load(ratings)
    for item in found.items:
        good = item.texts[0].startswith("ours")
        found.record("anna", item.id, "2" if good else "0")
        found.record("bert", item.id, "2" if good else "1")
    return ratings


def test_what_is_told(unspool, answered):
    status, out, err = unspool("rate", "report", answered)
    assert (status, err) == (0, "")
    assert out.startswith("24 answers to 12 items by anna (12), bert (12)\n")
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("ours ", "theirs "))]
    assert rows[0][:6] == ["ours", "12", "0", "0", "12", "2.000"]
    assert rows[1][:6] == ["theirs", "12", "6", "6", "0", "0.500"]
    assert "Krippendorff's α: nominal 0." in out
    assert "ours − theirs: +1.500, p = 0.0" in out


def test_json_and_a_figure(unspool, answered, tmp_path):
    status, out, err = unspool(
        "rate", "report", answered, "--json", "--figure", tmp_path / "f.svg", "--samples", 50
    )
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'f.svg'}\n")
    found = json.loads(out)
    assert [it["system"] for it in found["systems"]] == ["ours", "theirs"]
    assert found["pairs"][0]["difference"] == 1.5
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")


def test_without_answers_or_without_a_set(unspool, ratings, tmp_path):
    status, _, err = unspool("rate", "report", ratings, "--figure", tmp_path / "f.svg")
    assert status == 2
    assert "nobody has answered anything" in err
    assert not (tmp_path / "f.svg").exists()
    status, _, err = unspool("rate", "report", tmp_path / "nowhere")
    assert status == 2
    assert "holds no set.json" in err


def test_preferences(unspool, systems, tmp_path):
    unspool("rate", "prepare", *systems, "--out", tmp_path / "set", "--scale", "preference")
    found = RatingSet.load(tmp_path / "set")
    for item in found.items:
        found.record("anna", item.id, "a" if item.texts[0].startswith("ours") else "b")
    out = unspool("rate", "report", tmp_path / "set", "--samples", 50)[1]
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("ours ", "theirs "))]
    assert rows[0][:5] == ["ours", "6", "6", "0", "0"]
    assert rows[1][:5] == ["theirs", "6", "0", "0", "6"]
    assert "agreement cannot be told" in out
