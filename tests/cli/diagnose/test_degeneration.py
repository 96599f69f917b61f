import json

import pytest

import unspool as us


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcabcaabbccacb" * 4)
    return path


def test_a_table_and_a_verdict(unspool, loaded, text, tmp_path):
    argv = (
        "diagnose",
        "loops",
        "tiny",
        "--text",
        text,
        "--document",
        "file",
        "--prompt",
        2,
        "--texts",
        3,
        "--max-new-tokens",
        12,
    )
    status, out, err = unspool(
        *argv, "--decoder", "Greedy()", "--decoder", "Sample()", "--figure", tmp_path / "l.svg"
    )
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'l.svg'}\n")
    rows = [line.split() for line in out.splitlines()]
    assert ["Greedy()", "3", "3", "100%", "0", "0.667", "3", "3", "3"] in rows
    assert out.splitlines()[-1].startswith("3 of 3 texts (100%) by Greedy() end in a loop within 12 tokens")


def test_json(unspool, loaded, text):
    argv = (
        "diagnose",
        "loops",
        "tiny",
        "--text",
        text,
        "--document",
        "file",
        "--prompt",
        2,
        "--texts",
        2,
        "--max-new-tokens",
        12,
    )
    found = json.loads(unspool(*argv, "--json")[1])
    assert len(found["decoders"]) == 5
    assert found["decoders"][0]["rate"] == 1
    assert "loop" in found["verdict"]


def counted(unspool, path, *more):
    """How many texts the decoder was counted on."""
    argv = (
        "diagnose",
        "loops",
        "tiny",
        "--text",
        path,
        "--max-new-tokens",
        4,
        "--decoder",
        "Greedy()",
        "--json",
    )
    status, out, err = unspool(*argv, *more)
    assert status == 0, err
    return json.loads(out)["decoders"][0]["texts"]


FIVE = ["ab", "abca", "c", "bcab" * 20, "ca"]


def test_each_line_of_a_plain_file_is_one_prompt(unspool, loaded, tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("".join(f"{line}\n" for line in FIVE))
    assert counted(unspool, path) == 5
    assert counted(unspool, path, "--texts", 3) == 3


@pytest.mark.parametrize("field", ["prompt", "text"])
def test_each_json_line_is_one_prompt(unspool, loaded, tmp_path, field):
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps({field: line}) + "\n" for line in FIVE))
    assert counted(unspool, path) == 5


def test_a_prompt_is_continued_whole_and_a_text_from_its_beginning(unspool, loaded, tmp_path, monkeypatch):
    import unspool.diagnose.text_loops as module

    seen, measure = [], module.loop_rates

    def spy(model, prompts, *more, **options):
        seen.extend(prompts)
        return measure(model, prompts, *more, **options)

    monkeypatch.setattr(module, "loop_rates", spy)
    path = tmp_path / "mixed.jsonl"
    chat = json.dumps({"messages": [{"role": "user", "content": "bc"}]})
    path.write_text('{"prompt": "abcabc"}\n{"text": "abcabc"}\n' + chat)
    assert counted(unspool, path, "--prompt", 2) == 3
    assert [tuple(prompt) for prompt in seen] == [(0, 1, 2, 0, 1, 2), (0, 1), (0, 1, 2)]


def test_a_prompt_that_cannot_be_read_is_named(unspool, loaded, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "ab"}\n{"prompt": ""}\n')
    status, _, err = unspool("diagnose", "loops", "tiny", "--text", path)
    assert status == 2
    assert f"{path}:2: " in err


def test_texts_that_are_too_short_to_be_continued_are_counted(unspool, loaded, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("ab\nabc\n" + "abc" * 8)
    status, _, err = unspool("diagnose", "trap", "tiny", "--text", path, "--length", 4, "--phrase", 2)
    assert status == 0, err
    assert f"{path}: left out 2 of 3 texts, which end within --prompt 16" in err
    path.write_text("abc")
    status, _, err = unspool("diagnose", "trap", "tiny", "--text", path)
    assert status == 2
    assert "every text ends within its prompt" in err


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    dates = {"the 5th of May, 1921": "1921-05-05", "July 4th, 2025": "2025-07-04"}
    path.write_text("".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in dates.items()))
    return path


def test_widths_on_pairs(unspool, pairs, tmp_path):
    argv = ("diagnose", "beams", "dates", "--text", pairs, "--widths", 1, 4)
    status, out, err = unspool(*argv, "--figure", tmp_path / "b.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'b.svg'}\n")
    assert out.startswith(f"beams on {pairs}, 2 texts\n")
    assert out.splitlines()[-1].startswith("from width 1 to 4, length changes from 10.0 to 10.0 tokens")
    found = json.loads(unspool(*argv, "--json", "--beam", "Beam(1, length_penalty=GNMT(0.6))")[1])
    assert [it["width"] for it in found["points"]] == [1, 4]
    assert found["points"][0]["quality"] == 1


def test_only_a_beam_is_made_wider(unspool, pairs):
    status, _, err = unspool("diagnose", "beams", "dates", "--text", pairs, "--beam", "Greedy()")
    assert status == 2
    assert "--beam Greedy() is not a Beam" in err


def test_a_table_a_verdict_and_json(unspool, loaded, tmp_path):
    (tmp_path / "t.txt").write_text("abcabcaabbccacb" * 6)
    argv = (
        "diagnose",
        "trap",
        "tiny",
        "--text",
        tmp_path / "t.txt",
        "--prompt",
        2,
        "--length",
        12,
        "--phrase",
        4,
    )
    status, out, err = unspool(*argv, "--figure", tmp_path / "p.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'p.svg'}\n")
    names = [line.split()[0] for line in out.splitlines() if line.startswith(" ") and line.strip()]
    assert names[2:] == ["repeated", "human", "shuffled", "greedy", "sampled"]
    assert "for a repeated phrase" in out.splitlines()[-1]
    found = json.loads(unspool(*argv, "--json")[1])
    assert isinstance(found["trapped"], bool)
    assert found["kinds"]["human"]["low"] <= found["kinds"]["human"]["value"]


def test_a_run_on_a_language_takes_its_sentences(unspool, tmp_path):
    recipe = {
        "data": {"kind": "language", "language": {"kind": "agreement"}, "train": 50, "valid": 5},
        "batches": {"kind": "bucketed", "tokens": 60},
        "model": {"kind": "transformer_lm", "layers": 1, "width": 8, "heads": 2, "inner_width": 12},
        "schedule": {"kind": "constant"},
        "train": {"updates": 2},
    }
    us.train(recipe, tmp_path / "run")
    status, out, _ = unspool("diagnose", "trap", tmp_path / "run", "--phrase", 2, "--texts", 10)
    assert status == 0
    assert out.startswith("log p per token, on sentences of its language")
