import inspect
import json
import re

import pytest

import unspool as us
from unspool.cli import main
from unspool.cli.commands import command_parser
from unspool.diagnose import thresholds
from unspool.testing import bigram


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcabcaabbcc")
    return path


def test_the_table_holds_every_sampler(unspool, loaded, text):
    status, out, err = unspool("diagnose", "thresholds", "tiny", "--text", text, "--share", "0.2")
    assert status == 0
    assert err == "unspool: basis-aware samplers are left out: tiny does not have a single output matrix\n"
    assert loaded == [("tiny", "cpu")]
    assert [
        line.split()[-1].partition("(")[2].partition("(")[0] for line in out.splitlines() if "Sample" in line
    ] == [*("TopK", "TopP", "Typical", "TopNSigma", "Epsilon", "MinP", "TopA", "Eta")]


def test_json_by_hand(unspool, loaded, text):
    argv = ("diagnose", "thresholds", "tiny", "--text", text, "--share", "0.2", "0.5", "--json")
    records = [json.loads(line) for line in unspool(*argv)[1].splitlines()]
    (found,) = (r for r in records if r["sampler"] == "epsilon" and r["share"] == 0.2)
    # eleven steps: aa, bb and cc have 0.1, the other eight 0.7 and are the most probable
    assert found["tokens"] == 11
    assert found["rejected"] == 0  # three tokens tie at 0.1: more than two are never rejected
    (found,) = (r for r in records if r["sampler"] == "epsilon" and r["share"] == 0.5)
    assert found["rejected"] == pytest.approx(3 / 11)
    assert found["setting"] == pytest.approx(0.55)  # between 0.1 and 1, which is never reached
    assert us.parse(found["decoder"]) == us.Sample(us.Epsilon(0.55))


def test_errors_name_the_file(unspool, loaded, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("a")
    status, out, err = unspool("diagnose", "thresholds", "tiny", "--text", short)
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {short}: text 0 has 1 tokens")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert unspool("diagnose", "thresholds", "tiny", "--text", empty)[2] == (
        f"unspool: {empty}: the file contains no text\n"
    )
    assert "No such file" in unspool("diagnose", "thresholds", "tiny", "--text", tmp_path / "no.txt")[2]


def test_a_model_without_a_tokenizer_is_refused(unspool, monkeypatch, text):
    monkeypatch.setattr(us, "load", lambda name, **where: bigram([[0.5, 0.5]] * 2))
    status, _, err = unspool("diagnose", "thresholds", "tiny", "--text", text)
    assert status == 2
    assert "tiny does not have a tokenizer" in err


@pytest.mark.parametrize("wrong", [["--share", "1"], ["--share", "x"], ["--basis-tokens", "-1"]])
def test_bad_numbers_fail_before_the_model_is_loaded(unspool, loaded, text, wrong):
    status, _, err = unspool("diagnose", "thresholds", "tiny", "--text", text, *wrong)
    assert status == 2
    assert "--help" in err
    assert loaded == []


def test_an_encoder_decoder_is_measured_on_pairs(unspool, text, tmp_path):
    status, _, err = unspool("diagnose", "thresholds", "dates", "--text", text)
    assert status == 2
    assert "an encoder–decoder is measured on pairs" in err
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"source": "the 5th of May, 1921", "target": "1921-05-05"}\n')
    argv = ("diagnose", "thresholds", "dates", "--text", pairs, "--basis-tokens", "0", "--json")
    status, out, err = unspool(*argv)
    assert (status, err) == (0, "")
    model = us.load("dates")
    tokens = {json.loads(line)["tokens"] for line in out.splitlines()}
    assert tokens == {len(model.tokenizer.encode("1921-05-05")) + 1}


def test_a_narrow_model_is_tested_in_all_its_directions(unspool, narrow, text):
    argv = ("diagnose", "thresholds", narrow, "--text", text, "--share", "0.2", "--json")
    status, out, err = unspool(*argv)
    assert (status, err) == (0, "")
    decoders = [json.loads(line)["decoder"] for line in out.splitlines()]
    assert sum("BasisAware" in decoder and "rank=4" in decoder for decoder in decoders) == 3


def test_no_decoder_is_cut_off_on_a_narrow_terminal(loaded, text, terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    screen = terminal()
    assert main(["diagnose", "thresholds", "tiny", "--text", str(text), "--share", "0.5"]) == 0
    said = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, said.splitlines())) <= 50
    assert "…" not in said
    assert "Sample(TopNSigma(" in re.sub(r"\s", "", said)


def test_the_table_has_the_interval_of_the_share(unspool, loaded, text):
    status, out, _ = unspool("diagnose", "thresholds", "tiny", "--text", text, "--share", "0.5")
    assert status == 0
    assert "95 % interval" in out
    assert re.search(r"27\.27% +9\.75%–56\.56% +11 ", out)


def test_basis_aware_thresholds_rest_on_two_thousand_tokens_by_default():
    assert inspect.signature(thresholds).parameters["basis_tokens"].default == 2000
    args = command_parser().parse_args(["diagnose", "thresholds", "tiny", "--text", "a"])
    assert args.basis_tokens == 2000


def test_a_picture_is_drawn(unspool, loaded, tmp_path):
    path = tmp_path / "ranks.svg"
    argv = (
        "diagnose",
        "picture",
        "tiny",
        "ab",
        "--figure",
        path,
        "--decoder",
        "Sample(TopP(0.9))",
        "--top",
        "2",
    )
    assert unspool(*argv) == (0, "", f"unspool: wrote {path}\n")
    assert loaded == [("tiny", "cpu")]
    assert "<svg" in path.read_text()


def test_a_decoder_that_cuts_nothing_is_refused(unspool, loaded, tmp_path):
    status, _, err = unspool(
        *("diagnose", "picture", "tiny", "ab", "--figure", tmp_path / "a.svg", "--decoder", "Greedy()")
    )
    assert status == 2
    assert "give a Sample" in err
    assert loaded == []


def test_a_path_that_cannot_be_written_fails_before_the_work(unspool, monkeypatch, tmp_path):
    monkeypatch.setattr(us, "load", lambda *args, **options: pytest.fail("work was done"))
    status, _, err = unspool("diagnose", "picture", "tiny", "ab", "--figure", tmp_path / "no" / "a.svg")
    assert status == 2
    assert "a.svg: there is no folder" in err


def test_a_model_without_a_matrix_says_so(unspool, loaded, tmp_path):
    argv = ("diagnose", "picture", "tiny", "ab", "--figure", tmp_path / "a.svg")
    status, _, err = unspool(*argv, "--decoder", "Sample(BasisAware(0.1))")
    assert status == 2
    assert "needs the matrix of an output layer" in err
    assert list(tmp_path.iterdir()) == []


def test_by_default_what_cannot_work_is_left_out(unspool, kerbs, tmp_path):
    path = tmp_path / "ranks.svg"
    status, _, err = unspool("diagnose", "picture", kerbs, "ab", "--figure", path)
    assert status == 0
    assert err.startswith("unspool: Sample(BasisAware(EtaTau(0.3))) is left out: BasisAware needs the matrix")
    assert err.endswith(f"unspool: wrote {path}\n")


def test_a_narrow_model_is_drawn_with_all_defaults(unspool, narrow, tmp_path):
    path = tmp_path / "ranks.svg"
    assert unspool("diagnose", "picture", narrow, "ab", "--figure", path) == (
        0,
        "",
        f"unspool: wrote {path}\n",
    )


@pytest.mark.parametrize(
    ("name", "said"), [("a.svg", "is not one of abc"), ("a.txt", "unknown figure format")]
)
def test_a_failed_command_leaves_no_file(unspool, loaded, tmp_path, name, said):
    status, _, err = unspool("diagnose", "picture", "tiny", "xyz", "--figure", tmp_path / name)
    assert status == 2
    assert said in err
    assert list(tmp_path.iterdir()) == []
