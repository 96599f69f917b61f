import json

import pytest

import unspool as us
from unspool.cli.generate import _progress

GREEDY = ("generate", "a", "--greedy", "--max-new-tokens", "6")


def records(out):
    return [json.loads(line) for line in out.splitlines()]


def test_one_prompt_prints_its_continuation_and_nothing_else(unspool, loaded):
    assert unspool(*GREEDY) == (0, "bcabca\n", "")
    assert loaded == [("smollm2", "cpu")]


def test_the_model_and_its_device_are_passed_on(unspool, loaded):
    unspool(*GREEDY, "--model", "some/folder", "--device", "cuda")
    assert loaded == [("some/folder", "cuda")]


def test_a_terminal_is_streamed_to(terminal, loaded, monkeypatch):
    from unspool.cli import main

    def never(*args, **options):
        raise AssertionError("generate would show nothing until the end")

    monkeypatch.setattr(us, "generate", never)
    screen = terminal()
    assert main(list(GREEDY)) == 0
    assert screen.getvalue() == "bcabca\n"


def test_streamed_and_printed_texts_are_the_same(unspool, loaded, terminal):
    argv = ("generate", "a", "--top-p", "0.9", "--seed", "3", "--max-new-tokens", "30")
    printed = unspool(*argv)[1]
    screen = terminal()
    assert unspool(*argv)[0] == 0
    assert screen.getvalue() == printed


def test_standard_input(unspool, loaded, piped):
    piped(b"ab\n")
    assert unspool("generate", "--greedy", "--max-new-tokens", "3")[1] == "cab\n"


def test_stop_strings_end_the_text(unspool, loaded):
    assert unspool(*GREEDY, "--stop", "zz", "--stop", "ca")[1] == "b\n"


def test_loops_are_stopped_where_that_is_asked_for(unspool, loaded):
    argv = ("generate", "a", "--greedy", "--max-new-tokens", "100", "--json")
    (through,), (stopped,) = (records(unspool(*argv, *more)[1]) for more in ((), ("--stop-loops",)))
    assert (through["finish"], len(through["tokens"])) == ("length", 100)
    assert stopped["finish"] == "loop"
    assert through["text"].startswith(stopped["text"])
    assert len(stopped["tokens"]) < 30


def test_seeds_repeat_and_differ(unspool, loaded):
    argv = ("generate", "a", "--max-new-tokens", "30", "--seed")
    assert unspool(*argv, "1") == unspool(*argv, "1")
    assert len({unspool(*argv, seed)[1] for seed in range(6)}) > 1


def test_json_holds_everything(unspool, loaded):
    status, out, _ = unspool(
        "generate", "a", "--top-k", "1", "--max-new-tokens", "3", "--seed", "7", "--json"
    )
    assert status == 0
    (record,) = records(out)
    assert us.parse(record.pop("decoder")) == us.Sample(us.TopK(1))
    logps = record.pop("logps")
    assert logps == pytest.approx([-0.356675] * 3, abs=1e-5)  # ln 0.7
    assert record == {
        "prompt": "a",
        "sample": 0,
        "text": "bca",
        "tokens": [1, 2, 0],
        "finish": "length",
        "seed": 7,
    }


def test_without_a_seed_the_record_says_which_one_to_ask_for(unspool, loaded):
    argv = ("generate", "a", "--max-new-tokens", "30", "--json")
    (first,) = records(unspool(*argv)[1])
    (again,) = records(unspool(*argv, "--seed", first["seed"])[1])
    assert again == first


def test_several_answers(unspool, loaded):
    out = unspool("generate", "a", "--n", "3", "--max-new-tokens", "8", "--seed", "1", "--json")[1]
    assert [(r["prompt"], r["sample"]) for r in records(out)] == [("a", 0), ("a", 1), ("a", 2)]
    assert len({r["text"] for r in records(out)}) > 1
    assert (
        unspool(*GREEDY, "--n", "2")[1]
        == "── prompt 1, answer 1 ──\nbcabca\n── prompt 1, answer 2 ──\nbcabca\n"
    )


def test_a_file_in_batches_is_the_prompts_one_by_one(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nbb\nab\nccc\na\n")
    argv = ("--seed", "5", "--max-new-tokens", "12", "--json")
    together = records(unspool("generate", "--file", path, "--batch-size", "2", *argv)[1])
    alone = [records(unspool("generate", prompt, *argv)[1])[0] for prompt in ("a", "bb", "ab", "ccc", "a")]
    assert [r["text"] for r in together] == [r["text"] for r in alone]
    assert [r["prompt"] for r in together] == ["a", "bb", "ab", "ccc", "a"]


def test_a_file_for_people_numbers_its_answers(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nb\n")
    out = unspool("generate", "--file", path, "--greedy", "--max-new-tokens", "2")[1]
    assert out == "── prompt 1, answer 1 ──\nbc\n── prompt 2, answer 1 ──\nca\n"


def test_conversations(unspool, loaded, tmp_path):
    path = tmp_path / "talks.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "bb"}]}\n{"prompt": "b"}\n')
    options = ("--greedy", "--max-new-tokens", "1", "--json")
    assert [r["prompt"] for r in records(unspool("generate", "--file", path, *options)[1])] == ["abb", "b"]
    assert [r["prompt"] for r in records(unspool("generate", "b", "--chat", *options)[1])] == ["ab"]
    assert [r["prompt"] for r in records(unspool("generate", "b", "--system", "b", *options)[1])] == ["cbab"]


def test_a_bad_line_stops_everything_before_the_model_is_loaded(unspool, loaded, tmp_path):
    path = tmp_path / "talks.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": }\n')
    status, out, err = unspool("generate", "--file", path, "--json")
    assert (status, out, loaded) == (2, "", [])
    assert err.startswith(f"unspool: {path}:2: not JSON")


def test_a_line_that_the_model_cannot_read_stops_everything_before_generation(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nxyz\n")
    status, out, err = unspool("generate", "--file", path, "--batch-size", "1")
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {path}:2: 'x' is not one of abc")


def test_a_missing_file(unspool, loaded, tmp_path):
    status, _, err = unspool("generate", "--file", tmp_path / "nowhere.txt")
    assert status == 2
    assert err == f"unspool: {tmp_path / 'nowhere.txt'}: No such file or directory\n"


def test_output_goes_to_the_file(unspool, loaded, tmp_path):
    path = tmp_path / "out.txt"
    assert unspool(*GREEDY, "--output", path) == (0, "", "")
    assert path.read_text() == "bcabca\n"


def test_output_never_overwrites_the_prompts(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\n")
    status, _, err = unspool("generate", "--file", path, "--output", tmp_path / "." / "prompts.txt")
    assert status == 2
    assert "would overwrite the prompts" in err
    assert path.read_text() == "a\n"


def test_an_output_that_cannot_be_written(unspool, loaded, tmp_path):
    status, _, err = unspool(*GREEDY, "--output", tmp_path / "no" / "folder.txt")
    assert status == 2
    assert "folder.txt: No such file or directory" in err


def test_progress_is_shown_on_a_terminal_and_changes_no_number(terminal):
    screen = terminal("stderr")
    assert list(_progress(range(0, 5, 2), 5, bar=True)) == [0, 2, 4]
    assert "5/5" in screen.getvalue()


def test_no_progress_where_there_is_no_terminal_or_nothing_to_get_through(terminal, capsys):
    assert list(_progress(range(0, 5, 2), 5, bar=True)) == [0, 2, 4]
    assert capsys.readouterr().err == ""
    screen = terminal("stderr")
    assert list(_progress(range(0, 5, 2), 5, bar=False)) == [0, 2, 4]
    assert screen.getvalue() == ""
