import json
import math

import pytest

import unspool as us
from unspool.testing import TableModel

GREEDY = ("generate", "a", "--greedy", "--max-new-tokens", "6")


def records(out):
    return [json.loads(line) for line in out.splitlines()]


def test_one_prompt_prints_its_continuation_and_nothing_else(unspool, loaded):
    assert unspool(*GREEDY) == (0, "bcabca\n", "")
    assert loaded == [("smollm2", "cpu")]


def test_the_model_its_device_and_its_precision_are_passed_on(unspool, loaded):
    unspool(*GREEDY, "--model", "some/folder", "--device", "cuda")
    unspool(*GREEDY, "--model", "some/folder", "--dtype", "bfloat16")
    assert loaded == [("some/folder", "cuda"), ("some/folder", "cpu", "bfloat16")]


def test_how_its_weights_are_kept_and_what_computes_are_passed_on(unspool, loaded):
    unspool(*GREEDY, "--weights", "stored", "--engine", "torch")
    unspool(*GREEDY, "--weak", "other", "--weights", "int8")
    assert loaded == [
        ("smollm2", "cpu", ("weights", "stored"), ("engine", "torch")),
        ("smollm2", "cpu", ("weights", "int8")),
        ("other", "cpu", ("weights", "int8")),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--weights", "int4"), "weights is 'int4', but must be one of 'float32', 'int8', 'stored'"),
        (("--engine", "quick"), "engine is 'quick', but must be one of 'compiled', 'llama.cpp', 'torch'"),
        (("--weights", "int8", "--dtype", "bfloat16"), "weights='int8' needs"),
    ],
    ids=str,
)
def test_unknown_and_incompatible_options_are_refused(unspool, options, message):
    status, out, err = unspool(*GREEDY, "--model", "bible", *options)
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {message}")


@pytest.mark.parametrize("weights", ["stored", "int8", "float32"])
def test_a_model_speaks_with_weights_of_every_kind(unspool, weights):
    status, out, err = unspool(*GREEDY, "--model", "bible", "--weights", weights)
    assert (status, err) == (0, "")
    assert out.strip()


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
    assert (through["finish_reason"], len(through["tokens"])) == ("length", 100)
    assert stopped["finish_reason"] == "loop"
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
    assert record.pop("logps") == pytest.approx([-0.356675] * 3, abs=1e-5)  # ln 0.7
    assert record.pop("scores") == pytest.approx([0.0] * 3, abs=1e-6)  # of what TopK(1) has left
    assert record == {
        "prompt": "a",
        "sample": 0,
        "text": "bca",
        "tokens": [1, 2, 0],
        "total": None,
        "finish_reason": "length",
        "seed": 7,
        "model": "smollm2",
    }


def test_json_holds_the_worth_of_a_ranked_text(unspool, loaded):
    argv = ("generate", "a", "--decoder", "Beam(2)", "--max-new-tokens", "2", "--json")
    (record,) = records(unspool(*argv)[1])
    assert (
        record["total"] == pytest.approx(sum(record["scores"])) == pytest.approx(2 * math.log(0.7), abs=1e-5)
    )


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
        unspool(*GREEDY, "--n", "2")[1] == "── prompt 1, text 1 ──\nbcabca\n── prompt 1, text 2 ──\nbcabca\n"
    )


def test_a_file_in_batches_is_the_prompts_one_by_one(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nbb\nab\nccc\nba\n")
    argv = ("--seed", "5", "--max-new-tokens", "12", "--json")
    together = records(unspool("generate", "--prompts", path, "--batch-size", "2", *argv)[1])
    alone = [records(unspool("generate", prompt, *argv)[1])[0] for prompt in ("a", "bb", "ab", "ccc", "ba")]
    assert [r["text"] for r in together] == [r["text"] for r in alone]
    assert [r["prompt"] for r in together] == ["a", "bb", "ab", "ccc", "ba"]


def test_a_file_of_prompts_gives_one_line_per_input_line(unspool, loaded, tmp_path):
    path, out = tmp_path / "prompts.txt", tmp_path / "texts.txt"
    argv = ("generate", "--prompts", path, "--greedy", "--max-new-tokens", "2")
    for content, expected in {
        "a\nb\n": "bc\nca\n",
        "\na\n\n\nb\n\n": "\nbc\n\n\nca\n\n",
        "a": "bc\n",
    }.items():
        path.write_text(content)
        assert unspool(*argv)[1] == expected
        assert unspool(*argv, "--output", out) == (0, "", "")
        assert out.read_text() == expected


def test_line_breaks_in_a_text_become_spaces_in_line_output(unspool, loaded, monkeypatch, tmp_path):
    from tests.cli.conftest import Letters

    monkeypatch.setattr(Letters, "alphabet", "a\nc")
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n' * 2)
    argv = ("generate", "--prompts", path, "--greedy", "--max-new-tokens", "4")
    assert unspool(*argv)[1] == "ca\nca\n"
    assert [it["text"] for it in records(unspool(*argv, "--json")[1])] == ["\nca\n"] * 2


def test_lines_of_standard_input(unspool, loaded, piped):
    argv = ("generate", "--lines", "--greedy", "--max-new-tokens", "2")
    piped(b"a\n\nb\n")
    assert unspool(*argv)[1] == "bc\n\nca\n"
    piped(b"a\n")
    assert unspool(*argv)[1] == "bc\n"


def test_standard_input_of_an_encoder_decoder_is_read_by_lines(unspool, piped):
    lines = b"the 5th of May, 1921\nJuly 4th, 2025\n"
    piped(lines)
    assert unspool("generate", "--model", "dates", "--greedy")[:2] == (0, "1921-05-05\n2025-07-04\n")
    piped(lines)
    assert unspool("generate", "--model", "dates", "--greedy", "--no-lines")[1].count("\n") == 1


def test_output_in_a_pipe_is_flushed_piece_by_piece(loaded, monkeypatch):
    import io

    from unspool.cli import main

    class Pipe(io.StringIO):
        flushed = ()

        def flush(self):
            self.flushed = (*self.flushed, self.getvalue())

    pipe = Pipe()
    monkeypatch.setattr("sys.stdout", pipe)
    assert main(list(GREEDY)) == 0
    assert {"b", "bc", "bca"} < set(pipe.flushed)


def test_conversations(unspool, loaded, tmp_path):
    path = tmp_path / "talks.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "bb"}]}\n{"prompt": "b"}\n')
    options = ("--greedy", "--max-new-tokens", "1", "--json")
    assert [r["prompt"] for r in records(unspool("generate", "--prompts", path, *options)[1])] == ["abb", "b"]
    assert [r["prompt"] for r in records(unspool("generate", "b", "--chat", *options)[1])] == ["ab"]
    assert [r["prompt"] for r in records(unspool("generate", "b", "--system", "b", *options)[1])] == ["cbab"]


def test_a_bad_line_stops_everything_before_the_model_is_loaded(unspool, loaded, tmp_path):
    path = tmp_path / "talks.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": }\n')
    status, out, err = unspool("generate", "--prompts", path, "--json")
    assert (status, out, loaded) == (2, "", [])
    assert err.startswith(f"unspool: {path}:2: not JSON")


def test_a_line_that_the_model_cannot_read_stops_everything_before_generation(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nxyz\n")
    status, out, err = unspool("generate", "--prompts", path, "--batch-size", "1")
    assert (status, out) == (2, "")
    assert err.startswith(f"unspool: {path}:2: 'x' is not one of abc")


def test_a_missing_file(unspool, loaded, tmp_path):
    status, _, err = unspool("generate", "--prompts", tmp_path / "nowhere.txt")
    assert status == 2
    assert err == f"unspool: {tmp_path / 'nowhere.txt'}: No such file or directory\n"


def test_output_goes_to_the_file(unspool, loaded, tmp_path):
    path = tmp_path / "out.txt"
    assert unspool(*GREEDY, "--output", path) == (0, "", "")
    assert path.read_text() == "bcabca\n"


def test_output_never_overwrites_the_prompts(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("a\n")
    status, _, err = unspool("generate", "--prompts", path, "--output", tmp_path / "." / "prompts.txt")
    assert status == 2
    assert "would overwrite the input" in err
    assert path.read_text() == "a\n"


def test_an_output_that_cannot_be_written(unspool, loaded, tmp_path):
    status, _, err = unspool(*GREEDY, "--output", tmp_path / "no" / "folder.txt")
    assert status == 2
    assert "folder.txt: there is no folder" in err


def test_an_output_that_cannot_be_written_is_refused_before_the_model_is_loaded(unspool, loaded, tmp_path):
    for path in (tmp_path, tmp_path / "no" / "folder.txt"):
        assert unspool(*GREEDY, "--output", path)[0] == 2
    assert loaded == []


def test_lines_have_settings_of_their_own(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"prompt": "a", "max_new_tokens": 2, "id": "short"},
        {"prompt": "a", "stop": "ca", "id": ["any", 3]},
        {"prompt": "a", "stop": ["zz", "b"]},
        {"prompt": "a", "decoder": "Sample(TopK(1))"},
        {"prompt": "b", "n": 2, "seed": None},
        {"prompt": "b", "chat": True, "system": "b"},
        {"prompt": "a", "max_new_tokens": 100, "stop_loops": True},
        {"prompt": "a"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    argv = ("--prompts", path, "--greedy", "--max-new-tokens", "3", "--seed", "5", "--json")
    found = records(unspool("generate", *argv)[1])
    assert [r["text"] for r in found[:6]] == ["bc", "b", "", "bca", "cab", "cab"]
    assert [r["sample"] for r in found[3:7]] == [0, 0, 1, 0]
    assert found[6]["prompt"] == "cbab"
    assert found[7]["finish_reason"] == "loop"
    assert found[8]["text"] == "bca"
    assert [r.get("id") for r in found] == ["short", ["any", 3]] + [None] * 7
    assert [us.parse(r["decoder"]) for r in found] == [us.Greedy()] * 3 + [us.Sample(us.TopK(1))] + [
        us.Greedy()
    ] * 5


def test_a_prompt_that_a_file_repeats_is_its_next_sample(unspool, loaded, tmp_path):
    argv = ("--seed", "5", "--max-new-tokens", "12", "--json")
    samples = [it["tokens"] for it in records(unspool("generate", "a", "--n", "9", *argv)[1])]
    assert len({tuple(it) for it in samples}) > 4
    path = tmp_path / "prompts.txt"
    path.write_text("a\nb\n" * 9)
    for more in ((), ("--batch-size", "2")):
        found = records(unspool("generate", "--prompts", path, *argv, *more)[1])
        assert [it["tokens"] for it in found[::2]] == samples
    # Lines with settings of their own are decoded in batches of their own, and counted together.
    lines = [{"prompt": "a", "n": 2}, {"prompt": "a"}, {"prompt": "a", "max_new_tokens": 11}] * 2
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    found = [it["tokens"] for it in records(unspool("generate", "--prompts", path, *argv)[1])]
    assert found == [it[: 11 if at in (3, 7) else 12] for at, it in enumerate(samples[:8])]


def test_the_command_gives_the_texts_of_generate(unspool, loaded):
    for spec in ("Sample()", "Sample(XTC(0.1, 0.5))", "BeamSample(2)", "MBR(3, utility=TokenF1())"):
        argv = ("--seed", "5", "--max-new-tokens", "12", "--json", "--decoder", spec)
        out = us.generate(us.load("letters"), "ab", us.parse(spec), seed=5, max_new_tokens=12)
        assert records(unspool("generate", "ab", *argv)[1])[0]["tokens"] == list(out.tokens)


def test_a_line_with_a_seed_gives_the_text_of_that_seed(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": "a", "seed": seed}) for seed in range(5)))
    argv = ("--max-new-tokens", "12", "--json")
    together = records(unspool("generate", "--prompts", path, *argv)[1])
    alone = [records(unspool("generate", "a", "--seed", seed, *argv)[1])[0] for seed in range(5)]
    assert together == alone
    assert len({r["text"] for r in together}) > 1


def test_one_line_on_a_terminal_is_streamed_by_its_own_settings(unspool, loaded, tmp_path, terminal):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a", "decoder": "Greedy()", "max_new_tokens": 4}')
    screen = terminal()
    assert unspool("generate", "--prompts", path)[0] == 0
    assert screen.getvalue() == "bcab\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "a", "decoder": "Sampel()"}', "unknown decoder 'Sampel'"),
        ('{"prompt": "a", "sead": 3}', "'sead' is not a known key of a line: did you mean 'seed'?"),
        ('{"prompt": "a", "stop": [3]}', '"stop" is [3], but must be of type str or list'),
    ],
)
def test_a_bad_setting_is_named_by_its_line_before_the_model_is_loaded(unspool, loaded, tmp_path, line, said):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n' + line)
    status, out, err = unspool("generate", "--prompts", path)
    assert (status, out, loaded) == (2, "", [])
    assert err.startswith(f"unspool: {path}:2: ")
    assert said in err


def test_half_a_character_in_a_stop_string(unspool, loaded):
    status, _, err = unspool(*GREEDY, "--stop", "b", "--stop", "\udcff")
    assert (status, loaded) == (2, [])
    assert err.startswith("unspool: --stop has a lone surrogate")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_interrupted_text_stays_and_ends_its_line(terminal, loaded, monkeypatch, capsys, is_terminal):
    from unspool.cli import main

    def stream(*args, **options):
        yield us.Piece("bc", (1, 2), 0, 0, None)
        raise KeyboardInterrupt

    monkeypatch.setattr(us, "stream", stream)
    screen = terminal() if is_terminal else None
    assert main(list(GREEDY)) == 130
    captured = capsys.readouterr()
    assert (screen.getvalue() if is_terminal else captured.out) == "bc\n"
    assert captured.err == "unspool: interrupted\n"


def test_loading_is_shown_on_a_terminal_and_erased(unspool, loaded, terminal):
    screen = terminal("stderr")
    assert unspool(*GREEDY)[0] == 0
    assert screen.getvalue() == "loading smollm2 …\r\x1b[K"


def test_stop_tokens_end_the_text_and_are_not_shown(unspool, loaded, tmp_path):
    (record,) = records(unspool(*GREEDY, "--stop-id", "0", "--stop-id", "3", "--json")[1])
    assert (record["text"], record["tokens"], record["finish_reason"]) == ("bc", [1, 2, 0], "stop")
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a", "stop_ids": [2]}')
    (record,) = records(unspool("generate", "--prompts", path, "--greedy", "--json")[1])
    assert record["tokens"] == [1, 2]


def test_alternatives_of_each_token_are_in_the_record(unspool, loaded):
    argv = ("generate", "a", "--top-k", "2", "--max-new-tokens", "2", "--seed", "1", "--json")
    (record,) = records(unspool(*argv, "--alternatives", "4")[1])
    first = record["ranked"][0]
    assert [(each["token"], each["text"]) for each in first["model"]] == [
        (1, "b"),
        (2, "c"),
        (0, "a"),
        (3, "<end>"),
    ]
    assert [each["logp"] for each in first["model"]] == pytest.approx(
        [math.log(p) for p in (0.7, 0.15, 0.1, 0.05)], abs=1e-5
    )
    assert [each["text"] for each in first["drawn"]] == ["b", "c"]
    assert "ranked" not in records(unspool(*argv)[1])[0]


def test_alternatives_need_json(unspool, loaded):
    status, _, err = unspool(*GREEDY, "--alternatives", "2")
    assert (status, err) == (2, "unspool: --alternatives needs --json\n")
    assert loaded == []


@pytest.mark.parametrize("decoder", ["Sample()", "Greedy()", "Beam(3)", "MBR(5, utility=TokenF1())"])
def test_the_batch_size_changes_no_text(unspool, loaded, tmp_path, decoder):
    path = tmp_path / "prompts.txt"
    path.write_text("a\nbb\nab\nccc\n")
    argv = ("generate", "--prompts", path, "--n", "3", "--seed", "5", "--max-new-tokens", "6", "--json")
    alone, few, all_ = (
        unspool(*argv, "--decoder", decoder, "--batch-size", size)[1] for size in (1, 5, 1000)
    )
    assert alone == few == all_
    assert len(records(alone)) <= 12


def test_many_answers_are_split_and_written_as_they_come(unspool, loaded, monkeypatch):
    widest = []
    step = TableModel.step

    def counted(self, state, tokens_N):
        widest.append(len(tokens_N))
        return step(self, state, tokens_N)

    monkeypatch.setattr(TableModel, "step", counted)
    argv = ("generate", "a", "--n", "500", "--seed", "1", "--max-new-tokens", "2", "--json")
    found = records(unspool(*argv, "--batch-size", "50")[1])
    assert [record["sample"] for record in found] == list(range(500))
    assert max(widest) == 50
