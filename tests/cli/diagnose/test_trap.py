import json

import unspool as us


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
    status, out, err = unspool(*argv, "-o", tmp_path / "p.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'p.svg'}\n")
    names = [line.split()[0] for line in out.splitlines() if line.startswith(" ") and line.strip()]
    assert names[2:] == ["repeated", "human", "shuffled", "greedy", "sampled"]
    assert "a repeated phrase has log p" in out.splitlines()[-1]
    found = json.loads(unspool(*argv, "--json")[1])
    assert isinstance(found["trapped"], bool)
    assert found["kinds"]["human"]["low"] <= found["kinds"]["human"]["value"]


def test_a_run_on_a_language_takes_its_sentences(unspool, tmp_path):
    recipe = {
        "data": {"kind": "language", "language": {"kind": "pcfg"}, "train": 50, "valid": 5},
        "batches": {"kind": "bucketed", "tokens": 60},
        "model": {"kind": "transformer_lm", "layers": 1, "width": 8, "heads": 2, "inner_width": 12},
        "schedule": {"kind": "constant"},
        "train": {"updates": 2},
    }
    us.train(recipe, tmp_path / "run")
    status, out, _ = unspool("diagnose", "trap", tmp_path / "run", "--phrase", 2, "--texts", 10)
    assert status == 0
    assert out.startswith("log p a token, on sentences of its language")
