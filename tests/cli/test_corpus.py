import json
from argparse import ArgumentParser

import pytest

from unspool.cli.generate import add_ray_options, check_without_ray

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


def parsed(*argv):
    parser = ArgumentParser()
    add_ray_options(parser)
    return parser.parse_args(argv)


def test_options_of_the_pool_mean_nothing_without_it():
    check_without_ray(parsed())
    with pytest.raises(ValueError, match="--workers needs --ray"):
        check_without_ray(parsed("--workers", "2"))
