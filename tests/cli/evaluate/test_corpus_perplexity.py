import json

import pytest

from unspool.cli import main

TEXTS = ["In the beginning God created the heaven.", "And it was so.", "Let there be light: and there was."]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def test_a_corpus_has_the_perplexity_that_one_process_finds(here, corpus, tmp_path, capsys):
    command = ["evaluate", "model", "bible", "--text", str(corpus), "--json"]
    assert main(command) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main([*command, "--ray", "--block", "2", "--output", str(tmp_path / "out")]) == 0
    shared = json.loads(capsys.readouterr().out)
    assert (shared["texts"], shared["tokens"]) == (3, alone["tokens"])
    assert shared["perplexity"] == pytest.approx(alone["perplexity"], rel=1e-12)
    assert shared["bits_per_byte"] == pytest.approx(alone["bits_per_byte"], rel=1e-12)
    parts = [json.loads(it.read_text()) for it in sorted((tmp_path / "out").glob("part-*"))]
    each = [value for part in parts for value in part["by_text"]]
    assert each == pytest.approx(alone["by_text"], rel=1e-12)


def test_what_is_wrong_is_told_with_its_line(here, corpus, tmp_path, capsys):
    command = ["evaluate", "model", "bible", "--text", str(corpus)]
    ray = [*command, "--ray", "--output", str(tmp_path / "out")]
    for line, message in {
        '{"text": ""}': "corpus.jsonl:2: text 0 has 1 tokens",
        '{"txt": "a"}': 'corpus.jsonl:2: expected {"text": "…"}',
        "{": "corpus.jsonl:2: not JSON",
    }.items():
        corpus.write_text(f'{{"text": "And he said"}}\n{line}\n')
        assert main(ray) == 2
        assert message in capsys.readouterr().err
    for wrong, message in {
        (*ray, "--limit", "2"): "leave --figure and --limit out",
        (*command, "--ray"): "--output FOLDER",
        (*command, "--output", "x"): "--output goes with --ray",
    }.items():
        assert main(list(wrong)) == 2
        assert message in capsys.readouterr().err
    assert main(["evaluate", "model", "dates", *ray[3:]]) == 2
    assert "reads no lines of text alone" in capsys.readouterr().err
