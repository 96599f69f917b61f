import json

import pytest


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcabcaabbccacb" * 4)
    return path


def test_a_table_and_a_verdict(unspool, loaded, text, tmp_path):
    argv = ("diagnose", "loops", "tiny", "--text", text, "--prompt", 2, "--texts", 3, "--max-new-tokens", 12)
    status, out, err = unspool(
        *argv, "--decoder", "Greedy()", "--decoder", "Sample()", "-o", tmp_path / "l.svg"
    )
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'l.svg'}\n")
    rows = [line.split() for line in out.splitlines()]
    assert ["Greedy()", "3", "3", "100%", "0.667", "3", "3", "3"] in rows
    assert out.splitlines()[-1].startswith("3 of 3 texts (100%) by Greedy() end in a loop within 12 tokens")


def test_json(unspool, loaded, text):
    argv = ("diagnose", "loops", "tiny", "--text", text, "--prompt", 2, "--texts", 2, "--max-new-tokens", 12)
    found = json.loads(unspool(*argv, "--json")[1])
    assert len(found["decoders"]) == 5
    assert found["decoders"][0]["rate"] == 1
    assert "loop" in found["verdict"]


def test_texts_that_are_too_short(unspool, loaded, tmp_path):
    (tmp_path / "x.txt").write_text("abc")
    status, _, err = unspool("diagnose", "loops", "tiny", "--text", tmp_path / "x.txt")
    assert status == 2
    assert "no text is longer than the 16 tokens of its prompt" in err
