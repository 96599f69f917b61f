import json

import pytest


@pytest.fixture
def files(tmp_path):
    """Two systems that continue the same prompts, plain references, and texts of people."""
    for name, text in {"one": "abc", "two": "aaaaaaa"}.items():
        records = [{"prompt": "ab"[n % 2], "text": text[: 7 - n % 2]} for n in range(8)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(it) + "\n" for it in records))
    (tmp_path / "right.txt").write_text("abc\n" * 8)
    (tmp_path / "human.txt").write_text("abcabc\nbca\ncab\n")
    return tmp_path


def test_a_table(unspool, files):
    status, out, err = unspool(
        "evaluate",
        "texts",
        files / "one.jsonl",
        f"other={files / 'two.jsonl'}",
        "--references",
        files / "right.txt",
    )
    assert status == 0
    assert "one: Zipf: Zipf's coefficient needs two different tokens" in err
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["one"] == ["one", "other"]
    assert rows["texts"] == ["texts", "8", "8"]
    assert rows["TER"][1:5] == ["0", "0", "…", "0"]
    assert rows["TER"][5] == "100.0"
    assert rows["TER"][-2:] == ["p", "0.010"] or float(rows["TER"][-1]) < 0.05
    assert "BLEU: nrefs:1|" in out


def test_json_with_a_model(unspool, files, loaded):
    status, out, _ = unspool(
        *("evaluate", "texts", files / "one.jsonl", files / "two.jsonl", "--model", "tiny", "--json"),
        *("--tokens", "model", "--samples", 50),
    )
    assert status == 0
    first, second = (json.loads(line) for line in out.splitlines())
    assert first["measures"]["length"] == 3
    assert first["against_first"] == {}
    assert second["against_first"]["perplexity"]["difference"] == pytest.approx(
        second["measures"]["perplexity"] - first["measures"]["perplexity"]
    )
    assert second["measures"]["fit"] < first["measures"]["fit"]
    assert second["intervals"]["length"][0] <= second["measures"]["length"]


def test_people_beside_systems_and_a_figure(unspool, files, loaded):
    status, out, err = unspool(
        *("evaluate", "texts", files / "one.jsonl", "--human", files / "human.txt", "--model", "tiny"),
        *("--figure", files / "t.svg", "--samples", 50),
    )
    assert status == 0
    assert "human" in out.splitlines()[1]
    assert "MAUVE: MAUVE needs at least 300 human texts" in err
    assert (files / "t.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["one.jsonl", "--references", "human.txt"], "8 outputs but"),
        (["one.jsonl", "--references", "no.txt"], "no.txt: No such file"),
        (["one.jsonl", "--human", "human.txt"], "need --model"),
        (["one.jsonl", "--prompts", "human.txt"], "8 outputs but"),
        (["one.jsonl", "one.jsonl"], "two systems are called 'one'"),
        (["one.jsonl", "--figure", "x.gif"], "unknown figure format"),
        (["empty.txt"], "contains no output"),
        (["blank.txt"], "all 2 outputs are empty"),
    ],
)
def test_bad_input_is_told_in_one_line(unspool, files, argv, said, monkeypatch):
    monkeypatch.chdir(files)
    (files / "empty.txt").write_text("")
    (files / "blank.txt").write_text(" \n\n")
    status, out, err = unspool("evaluate", "texts", *argv)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_one_text_only(unspool, files):
    (files / "single.txt").write_text("hello there\n")
    status, _, err = unspool("evaluate", "texts", files / "single.txt")
    assert status == 0
    assert "self-BLEU needs at least two texts" in err


def test_references_in_a_tsv_are_its_second_column(unspool, files):
    (files / "pairs.tsv").write_text("b\tabc\n" * 8)
    (files / "wide.tsv").write_text("7\tb\t8\tabc\n" * 8)
    for given in ([files / "pairs.tsv"], [files / "wide.tsv", "--columns", 2, 4]):
        argv = ("evaluate", "texts", files / "one.jsonl", "--json", "--samples", 20, "--references", *given)
        status, out, err = unspool(*argv)
        assert status == 0, err
        assert json.loads(out)["measures"]["TER"] == 0
    status, _, err = unspool("evaluate", "texts", files / "one.jsonl", "--references", files / "wide.tsv")
    assert status == 2
    assert "wide.tsv:1: 4 tab-separated columns, but 2 are expected" in err


def test_plain_references_with_a_tab_on_every_line_are_spoken_of(unspool, files):
    (files / "pairs.txt").write_text("b\tabc\n" * 8)
    argv = ("evaluate", "texts", files / "one.jsonl", "--references", files / "pairs.txt", "--samples", 20)
    assert (
        "every line has a tab and is read as one text; name the file .tsv if it holds pairs"
        in unspool(*argv)[2]
    )


def test_prompts_and_outputs_may_be_columns_too(unspool, files, loaded):
    (files / "pairs.tsv").write_text("a\tbc\nb\tca\n")
    argv = ("evaluate", "texts", files / "pairs.tsv", "--model", "tiny", "--samples", 20, "--json")
    status, out, err = unspool(*argv)
    assert status == 0, err
    assert "fit" in json.loads(out)["measures"]


@pytest.fixture
def measures(tmp_path, monkeypatch):
    (tmp_path / "my_measures.py").write_text(
        "def letters(text):\n    return text.count('a')\n\n"
        "def same(text, reference):\n    return text == reference\n\n"
        "def failing(text):\n    return {}['a']\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_measures_of_ones_own(unspool, files, measures):
    argv = (
        "evaluate",
        "texts",
        files / "one.jsonl",
        files / "two.jsonl",
        "--references",
        files / "right.txt",
    )
    own = ("--measure", "my_measures:letters", "--measure", "my_measures:same", "--trust-code")
    status, out, _ = unspool(*argv, *own, "--samples", 50, "--json")
    assert status == 0
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["measures"]["letters"], second["measures"]["letters"]) == (1.0, 6.5)
    assert (first["measures"]["same"], second["measures"]["same"]) == (1.0, 0.0)
    assert first["intervals"]["letters"] == [1.0, 1.0]
    assert second["against_first"]["letters"]["difference"] == 5.5


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("my_measures:letters",), "would run Python code of 'my_measures': allow it with --trust-code"),
        (("letters", "--trust-code"), "--measure 'letters': write module:function"),
        (("my_measures:same", "--trust-code"), "is not a function of a text"),
        (
            ("my_measures:failing", "--trust-code"),
            "--measure 'my_measures:failing' failed with KeyError: 'a'",
        ),
    ],
)
def test_measure_that_cannot_be_used_is_refused(unspool, files, measures, argv, words):
    status, out, err = unspool("evaluate", "texts", files / "one.jsonl", "--measure", *argv)
    assert (status, out) == (2, "")
    assert words in err
