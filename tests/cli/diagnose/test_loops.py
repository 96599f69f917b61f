import json

import pytest


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
        *argv, "--decoder", "Greedy()", "--decoder", "Sample()", "-o", tmp_path / "l.svg"
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
    assert "no text is longer than the 16 tokens of its prompt" in err
