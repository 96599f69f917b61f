import io
import json

import pytest

from unspool.cli.lab import claims_run


def test_a_claim_is_measured_and_told(unspool, coins, cache):
    status, out, err = unspool("lab", "run", "coin")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        *("coin: reproduced", "  A coin falls.", "  3 of 3 seeds: heads > 0.45"),
        "    heads: 0.6 ± 0.1",
    ]
    assert len(list(cache.glob("coin-full-seed*.json"))) == 3


def test_a_quick_run_gives_no_verdict(unspool, coins):
    assert unspool("lab", "run", "coin", "--quick")[1].startswith("coin: measured, quickly\n")


def test_json(unspool, coins):
    lines = unspool("lab", "run", "--all", "--seeds", "2", "--json")[1].splitlines()
    found = [json.loads(line) for line in lines]
    assert [it["name"] for it in found] == ["coin", "die"]
    assert found[0]["verdict"] == "reproduced"
    assert found[0]["numbers"]["heads"]["mean"] == pytest.approx(0.6)
    assert found[0]["results"][0]["seed"] == 2


def test_a_failed_experiment_is_told_of_and_the_others_go_on(unspool, lost):
    status, out, err = unspool("lab", "run", "--all", "--seeds", "1")
    assert status == 1
    assert "coin: reproduced" in out
    assert err == "unspool: failed: lost, seed 1: RuntimeError: the coin is gone\n"
    assert "Traceback" in unspool("lab", "run", "lost", "--debug")[2]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("coyn",), "there is no claim 'coyn': did you mean coin?"),
        ((), "name the claims to run, or give --all"),
        (("coin", "--seeds", "x"), "'x' is not a whole number"),
    ],
)
def test_what_cannot_be_run_is_refused(argv, words, unspool, coins):
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
    assert "coin: reproduced" in out
    assert json.loads(path.read_text())["claim"] == "coin"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(coins, monkeypatch):
    monkeypatch.setattr(claims_run.sys, "stderr", terminal := Terminal())
    with claims_run._bar(coins, [1, 2]) as progress:
        progress(coins[1], 2, 1.0)
    assert "die, seed 2" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
