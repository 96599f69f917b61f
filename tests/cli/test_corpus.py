import json
from argparse import ArgumentParser, Namespace

import pytest

from unspool.cli import main
from unspool.cli.corpus import add_ray_options, check_without_ray, open_corpus, pool_options

LINES = [
    {"prompt": "a", "id": "one", "seed": 4},
    {"prompt": "b", "decoder": "Greedy()", "n": 2},
    {"messages": [{"role": "user", "content": "c"}]},
    {"prompt": "ca", "max_new_tokens": 3},
    {"prompt": "ab"},
    {"prompt": "a", "seed": 4, "n": 3},
    {"prompt": "a", "seed": 4, "max_new_tokens": 5},
    {"prompt": "c", "chat": True},
    {"prompt": "ab", "seed": 2},
]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def parts(folder):
    return "".join(part.read_text() for part in sorted(folder.glob("part-*")))


def test_the_parts_are_the_file_that_one_process_writes(unspool, loaded, here, corpus, tmp_path):
    command = ("generate", "--prompts", corpus, "--seed", 2, "--max-new-tokens", 6)
    assert unspool(*command, "--json", "--output", tmp_path / "local.jsonl")[0] == 0
    status, out, err = unspool(*command, "--ray", "--block-size", 2, "--output", tmp_path / "out")
    assert (status, out) == (0, "")
    assert err == f"unspool: 9 prompts in 5 parts: {tmp_path / 'out'}\n"
    assert parts(tmp_path / "out") == (tmp_path / "local.jsonl").read_text()


def test_no_two_lines_of_a_corpus_share_a_random_stream(unspool, loaded, here, tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"prompt": "a"}\n' * 12)
    command = ("generate", "--seed", 2, "--max-new-tokens", 16)
    for block in (1, 5, 12):
        out = tmp_path / f"out{block}"
        unspool(
            *command, "--prompts", tmp_path / "corpus.jsonl", "--ray", "--block-size", block, "--output", out
        )
        found = [json.loads(line)["tokens"] for line in parts(out).splitlines()]
        n = unspool(*command, "a", "--n", 12, "--json")[1].splitlines()
        assert found == [json.loads(line)["tokens"] for line in n]
    assert len({tuple(it) for it in found}) > 8


def test_a_seed_that_was_drawn_is_drawn_once(unspool, loaded, here, corpus, tmp_path):
    command = ("generate", "--prompts", corpus, "--ray", "--block-size", 2, "--output", tmp_path / "out")
    unspool(*command)
    whole = parts(tmp_path / "out")
    (tmp_path / "out/part-000001.jsonl").unlink()
    status, _, err = unspool(*command)
    assert (status, parts(tmp_path / "out")) == (0, whole)
    assert "9 prompts in 5 parts, 4 of them already there" in err
    status, _, err = unspool(*command, "--greedy")
    assert status == 2
    assert "belongs to another job (decoder was 'Sample" in err


def test_errors_are_one_line(unspool, loaded, here, corpus, tmp_path):
    ray = ("--ray", "--output", tmp_path / "out")
    for command, message in {
        ("generate", "a", *ray): "--ray needs --prompts",
        ("generate", "a", "--prompts", corpus, *ray): "give PROMPT or --prompts, not both",
        ("generate", "--prompts", corpus, "--ray"): "--ray needs --output FOLDER",
        ("generate", "--prompts", corpus, "--block-size", 3): "--block-size needs --ray",
        ("generate", "--prompts", corpus, *ray, "--decoder", "Sampel()"): "Sampel",
    }.items():
        status, out, err = unspool(*command)
        assert (status, out, err.count("\n")) == (2, "", 1), command
        assert message in err
    corpus.write_text('{"prompt": "a"}\n{"promt": "b"}\n')
    status, _, err = unspool("generate", "--prompts", corpus, *ray)
    assert (status, "corpus.jsonl:2: expected" in err) == (2, True)


TEXTS = ["In the beginning God created the heaven.", "And it was so.", "Let there be light: and there was."]


@pytest.fixture
def corpus_of_corpus_perplexity(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return path


def test_a_corpus_has_the_perplexity_that_one_process_finds(
    here, corpus_of_corpus_perplexity, tmp_path, capsys
):
    command = ["evaluate", "model", "bible", "--text", str(corpus_of_corpus_perplexity), "--json"]
    assert main(command) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main([*command, "--ray", "--block-size", "2", "--output", str(tmp_path / "out")]) == 0
    shared = json.loads(capsys.readouterr().out)
    assert (shared["texts"], shared["tokens"]) == (3, alone["tokens"])
    assert shared["perplexity"] == pytest.approx(alone["perplexity"], rel=1e-12)
    assert shared["bits_per_byte"] == pytest.approx(alone["bits_per_byte"], rel=1e-12)
    parts = [json.loads(it.read_text()) for it in sorted((tmp_path / "out").glob("part-*"))]
    each = [value for part in parts for value in part["by_text"]]
    assert each == pytest.approx(alone["by_text"], rel=1e-12)


def test_errors_name_their_line(here, corpus_of_corpus_perplexity, tmp_path, capsys):
    command = ["evaluate", "model", "bible", "--text", str(corpus_of_corpus_perplexity)]
    ray = [*command, "--ray", "--output", str(tmp_path / "out")]
    for line, message in {
        '{"text": ""}': "corpus.jsonl:2: text 0 has 1 tokens",
        '{"txt": "a"}': 'corpus.jsonl:2: expected {"text": "…"}',
        "{": "corpus.jsonl:2: not JSON",
    }.items():
        corpus_of_corpus_perplexity.write_text(f'{{"text": "And he said"}}\n{line}\n')
        assert main(ray) == 2
        assert message in capsys.readouterr().err
    for wrong, message in {
        (*ray, "--limit", "2"): "leave --figure and --limit out",
        (*command, "--ray"): "--output FOLDER",
        (*command, "--output", "x"): "--output needs --ray",
    }.items():
        assert main(list(wrong)) == 2
        assert message in capsys.readouterr().err
    assert main(["evaluate", "model", "dates", *ray[3:]]) == 2
    assert "--ray needs a language model with a tokenizer" in capsys.readouterr().err


def parsed(*argv):
    parser = ArgumentParser()
    add_ray_options(parser, "--prompts")
    return parser.parse_args(argv)


def test_options_of_the_pool_mean_nothing_without_it():
    check_without_ray(parsed())
    with pytest.raises(ValueError, match="--workers needs --ray"):
        check_without_ray(parsed("--workers", "2"))


def test_a_corpus_needs_a_folder_to_go_to(tmp_path):
    path = tmp_path / "a.jsonl"
    path.touch()
    with pytest.raises(ValueError, match="--output FOLDER"):
        open_corpus(Namespace(output=None, block_size=None), path, ())
    made = open_corpus(Namespace(output=tmp_path / "out", block_size=None), path, ("prompt",))
    assert (made.files, made.rows, made.columns) == ([path], 256, ("prompt",))
    assert open_corpus(Namespace(output=tmp_path / "out", block_size=3), path, ()).rows == 3


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 0), ("cuda", 1), ("cuda:1", 1)])
def test_a_worker_on_a_graphics_processor_takes_one(device, gpus):
    assert pool_options(Namespace(workers=4, device=device)) == {"workers": 4, "gpus": gpus}
