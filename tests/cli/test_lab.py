import json
from argparse import Namespace
from dataclasses import replace

import pytest

from unspool.cli import main
from unspool.cli.lab import chosen_claims, chosen_seeds, stored_findings
from unspool.lab import claims
from unspool.lab.claim import Claim


def tossed(seed, quick, progress):
    progress(0.5)
    return {"effect": 0.3 + 0.01 * (seed % 10), "heads": 0.5 + 0.1 * seed, "by toss": [0.0, float(seed)]}


def broken(seed, quick, progress):
    raise RuntimeError("the coin is gone")


def drawn(figure, runs):
    figure.subplots().plot([run["heads"] for run in runs])


def claim(name, measure):
    return Claim(
        name=name,
        statement=f"A {name} falls.",
        source="A book, page 7",
        measured="Tosses.",
        primary="heads minus tails",
        matters=0.1,
        assumed=(0.3, 0.1),
        seeds=10,
        measure=measure,
        draw=drawn,
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/lab"


@pytest.fixture
def coins(monkeypatch):
    """Two claims in place of the package's: a coin that is tossed in no time, and a die."""
    found = (claim("coin", tossed), claim("die", tossed))
    monkeypatch.setattr(claims, "CLAIMS", found)
    return found


@pytest.fixture
def lost(monkeypatch):
    """… and one whose experiment fails."""
    found = (claim("coin", tossed), claim("lost", broken))
    monkeypatch.setattr(claims, "CLAIMS", found)
    return found


def test_claims_are_chosen_in_their_own_order(coins):
    assert [it.name for it in chosen_claims(["die", "coin"], False, coins)] == ["coin", "die"]
    assert chosen_claims([], True, coins) == list(coins)


@pytest.mark.parametrize(("names", "everything"), [([], False), (["coin"], True)])
def test_names_or_all_but_not_both(names, everything, coins):
    with pytest.raises(ValueError, match="name the claims to run, or give --all"):
        chosen_claims(names, everything, coins)


def test_an_unknown_name_is_refused_with_what_was_perhaps_meant(coins):
    with pytest.raises(ValueError, match="unknown claim 'coyn': did you mean 'coin'"):
        chosen_claims(["coyn"], False, coins)
    with pytest.raises(ValueError, match="unknown claim 'zzz': choose from coin, die"):
        chosen_claims(["zzz"], False, coins)


def test_seeds_are_those_of_each_claim_unless_others_are_given():
    assert chosen_seeds(Namespace(seeds=None)) is None
    assert chosen_seeds(Namespace(seeds=[4, 5, 4])) == [4, 5]


def test_nothing_is_known_at_first(coins):
    (coin, _) = stored_findings(Namespace(seeds=[1], quick=False, folder=None), coins)
    assert coin.verdict == "not run"


def test_every_claim_has_a_line(unspool, coins):
    status, out, err = unspool("lab", "list")
    assert (status, err) == (0, "")
    assert [line.split()[:3] for line in out.splitlines()] == [["coin", "not", "run"], ["die", "not", "run"]]


def test_json(unspool, coins):
    unspool("lab", "run", "coin")
    first = json.loads(unspool("lab", "list", "--json")[1].splitlines()[0])
    assert (first["name"], first["verdict"], first["stale"]) == ("coin", "supported", False)
    assert (first["plan"]["primary"], first["plan"]["matters"]) == ("heads minus tails", 0.1)
    assert first["effect"]["mean"] == pytest.approx(0.345)
    assert first["seeds"] == list(range(101, 111))


def test_a_claim_is_measured_and_reported(unspool, coins, cache):
    status, out, err = unspool("lab", "run", "coin")
    assert (status, err) == (0, "unspool: 10 measurements, up to 2 min; known results are not repeated\n")
    lines = out.splitlines()
    assert lines[:2] == ["coin: supported", "  A coin falls."]
    assert lines[2].startswith("  heads minus tails: 0.345 (0.32")
    assert lines[2].endswith("matters from 0.1; 10 seeds")
    assert lines[3].startswith("    heads: 11.05 (10.8")
    assert len(list(cache.glob("coin-full-seed*.json"))) == 10


def test_stale_runs_only_what_other_code_has_measured(unspool, coins, cache, monkeypatch):
    unspool("lab", "run", "coin")
    assert unspool("lab", "run", "--stale")[1] == ""
    monkeypatch.setattr(claims, "CLAIMS", (replace(coins[0], matters=0.2), coins[1]))
    assert unspool("lab", "list")[1].startswith("coin                   not run (stale) ")
    status, out, _ = unspool("lab", "run", "--stale")
    assert (status, out.splitlines()[0]) == (0, "coin: supported")
    assert "die" not in out
    assert "stale" not in unspool("lab", "list")[1]


def test_quick_run_has_no_verdict(unspool, coins):
    assert unspool("lab", "run", "coin", "--quick")[1].startswith("coin: quick run\n")
    listed = [line.split()[:3] for line in unspool("lab", "list", "--quick")[1].splitlines()]
    assert listed == [["coin", "quick", "run"], ["die", "not", "run"]]
    record = json.loads(unspool("lab", "list", "--quick", "--json")[1].splitlines()[0])
    assert record["verdict"] == "quick run"


def test_json_of_claims_run(unspool, coins):
    lines = unspool("lab", "run", "--all", "--json")[1].splitlines()
    found = [json.loads(line) for line in lines]
    assert [it["name"] for it in found] == ["coin", "die"]
    assert found[0]["verdict"] == "supported"
    assert found[0]["numbers"]["heads"]["mean"] == pytest.approx(11.05)
    assert found[0]["results"][0]["seed"] == 101


def test_a_failed_experiment_is_told_of_and_the_others_go_on(unspool, lost):
    status, out, err = unspool("lab", "run", "--all", "--seeds", "1")
    assert status == 1
    assert "coin: incomplete" in out
    assert err.endswith("unspool: failed: lost, seed 1: RuntimeError: the coin is gone\n")
    assert "Traceback" in unspool("lab", "run", "lost", "--debug")[2]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("coyn",), "unknown claim 'coyn': did you mean 'coin'?"),
        ((), "name the claims to run, or give --all"),
        (("coin", "--seeds", "x"), "'x' is not a whole number"),
    ],
)
def test_a_claim_that_cannot_run_is_refused(argv, words, unspool, coins):
    status, _, err = unspool("lab", "run", *argv)
    assert status == 2
    assert words in err


def test_a_folder_that_cannot_be_written_to_is_refused(unspool, coins, tmp_path):
    (tmp_path / "file").write_text("")
    status, _, err = unspool("lab", "run", "coin", "--folder", tmp_path / "file/in")
    assert status == 2
    assert err.startswith(f"unspool: {tmp_path}/file")


def test_a_damaged_result_is_told_of_and_measured_again(unspool, coins, cache):
    unspool("lab", "run", "coin", "--seeds", "1")
    (path,) = cache.glob("coin-*.json")
    path.write_text("{")
    status, out, err = unspool("lab", "run", "coin", "--seeds", "1")
    assert status == 0
    assert "is damaged" in err
    assert "coin: incomplete" in out
    assert json.loads(path.read_text())["claim"] == "coin"


def test_a_bar_shows_claim_seed_and_progress(coins, terminal):
    screen = terminal("stderr")
    assert main(["lab", "run", "--all", "--seeds", "1", "2"]) == 0
    assert "die, seed 2" in screen.getvalue()
    assert "/32" in screen.getvalue()  # seconds: four measurements of eight


def test_a_page_of_all_claims(unspool, coins, tmp_path):
    unspool("lab", "run", "coin")
    status, out, err = unspool("lab", "report", "--markdown", tmp_path / "lab.md")
    assert (status, out) == (0, "")
    assert err.splitlines() == [
        "unspool: not measured yet: die; run: unspool lab run --all",
        f"unspool: wrote {tmp_path}/lab.md",
    ]
    assert "1 supported, 1 not run" in (tmp_path / "lab.md").read_text(encoding="utf-8")


def test_json_makes_pages_anywhere(unspool, coins, tmp_path, monkeypatch):
    unspool("lab", "run", "--all")
    (tmp_path / "lab.json").write_text(unspool("lab", "report", "--json")[1], encoding="utf-8")
    monkeypatch.setenv("UNSPOOL_CACHE", str(tmp_path / "another"))
    status, _, err = unspool(
        "lab", "report", "--from", tmp_path / "lab.json", "--markdown", tmp_path / "lab.md"
    )
    assert (status, err) == (0, f"unspool: wrote {tmp_path}/lab.md\n")
    assert "2 claims: 2 supported" in (tmp_path / "lab.md").read_text(encoding="utf-8")
    assert sorted(it.name for it in (tmp_path / "img/lab").iterdir()) == ["coin.svg", "die.svg"]
    again = unspool("lab", "report", "--from", tmp_path / "lab.json", "--json")[1]
    assert json.loads(again) == json.loads((tmp_path / "lab.json").read_text(encoding="utf-8"))


def test_a_path_that_cannot_be_written_is_refused(unspool, coins, tmp_path):
    for argv, words in (
        ((), "no output: give --markdown"),
        (("--markdown", tmp_path), "is a folder; give the name of a file"),
        (("--markdown", tmp_path / "no/lab.md"), "there is no folder"),
        (("--json", "--from", tmp_path / "no.json"), "No such file"),
    ):
        status, _, err = unspool("lab", "report", *argv)
        assert status == 2
        assert words in err
    (tmp_path / "x.json").write_text("[]")
    assert "is not a report" in unspool("lab", "report", "--json", "--from", tmp_path / "x.json")[2]
