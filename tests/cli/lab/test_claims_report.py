import json


def test_a_page_of_all_claims(unspool, coins, tmp_path):
    unspool("lab", "run", "coin")
    status, out, err = unspool("lab", "report", "-o", tmp_path / "lab.html")
    assert (status, out) == (0, "")
    assert err.splitlines() == [
        "unspool: not run yet: die; `unspool lab run --all` does",
        f"unspool: wrote {tmp_path}/lab.html",
    ]
    assert "1 reproduced, 1 not run" in (tmp_path / "lab.html").read_text(encoding="utf-8")


def test_json_makes_pages_anywhere(unspool, coins, tmp_path, monkeypatch):
    unspool("lab", "run", "--all")
    (tmp_path / "lab.json").write_text(unspool("lab", "report", "--json")[1], encoding="utf-8")
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "another"))
    status, _, err = unspool(
        "lab", "report", "--from", tmp_path / "lab.json", "--markdown", tmp_path / "lab.md"
    )
    assert (status, err) == (0, f"unspool: wrote {tmp_path}/lab.md\n")
    assert "2 claims: 2 reproduced" in (tmp_path / "lab.md").read_text(encoding="utf-8")
    assert sorted(it.name for it in (tmp_path / "img/lab").iterdir()) == ["coin.svg", "die.svg"]
    again = unspool("lab", "report", "--from", tmp_path / "lab.json", "--json")[1]
    assert json.loads(again) == json.loads((tmp_path / "lab.json").read_text(encoding="utf-8"))


def test_what_cannot_be_written_is_refused(unspool, coins, tmp_path):
    for argv, words in (
        ((), "say what to write"),
        (("-o", tmp_path), "a folder; name a file in it"),
        (("-o", tmp_path / "no/lab.html"), "there is no folder"),
        (("--json", "--from", tmp_path / "no.json"), "No such file"),
    ):
        status, _, err = unspool("lab", "report", *argv)
        assert status == 2
        assert words in err
    (tmp_path / "x.json").write_text("[]")
    assert "is no report of the lab" in unspool("lab", "report", "--json", "--from", tmp_path / "x.json")[2]
