import json

import pytest

import unspool as us


def test_a_table_a_verdict_and_json(unspool, loaded, tmp_path):
    (tmp_path / "t.txt").write_text("abcabcaabbccacb" * 6)
    argv = ("diagnose", "calibration", "tiny", "--text", tmp_path / "t.txt", "--prompt", 1, "--length", 100)
    status, out, err = unspool(*argv, "--figure", tmp_path / "p.svg")
    assert (status, err) == (0, f"unspool: wrote {tmp_path / 'p.svg'}\n")
    assert out.startswith(f"the most probable token, on {tmp_path / 't.txt'}, 89 positions\n")
    assert out.splitlines()[-1].startswith("ECE 0.")
    found = json.loads(unspool(*argv, "--json", "--bins", 5)[1])
    assert (found["count"], len(found["bins"])) == (89, 5)
    assert "confident" in found["verdict"] or "calibrated" in found["verdict"]


TINY = {"width": 8, "heads": 2, "inner_width": 12}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcabcaabbccacb" * 4)
    return path


def test_the_gap_is_told_by_length(unspool, loaded, text):
    status, out, err = unspool(
        *(
            "diagnose",
            "exposure",
            "tiny",
            "--text",
            text,
            "--prompt",
            "2",
            "--lengths",
            "1",
            "2",
        )
    )
    assert (status, err) == (0, "")
    assert out.startswith(f"−log p of the text's next tokens, nats per token, on {text}")
    assert [line.split()[0] for line in out.splitlines()[4:6]] == ["1", "2"]
    assert "excess" in out
    assert "95 % interval" in out.splitlines()[-1]


def test_json(unspool, loaded, text):
    argv = ("diagnose", "exposure", "tiny", "--text", text, "--prompt", "2", "--lengths", "1", "--json")
    found = json.loads(unspool(*argv)[1])
    assert [it["length"] for it in found["points"]] == [1]
    (point,) = found["points"]
    assert point["gap"] == pytest.approx(point["own"] - point["right"])
    assert point["excess"] == pytest.approx(point["gap"] - point["perfect"])
    assert found["interval"]["low"] <= found["excess"] <= found["interval"]["high"]


def test_without_a_text_there_is_nothing_to_measure(unspool, loaded):
    status, _, err = unspool("diagnose", "exposure", "tiny")
    assert status != 0
    assert "give --text" in err


def recipe(data, model, tokenizer=None):
    return {
        "data": data,
        **({} if tokenizer is None else {"tokenizer": tokenizer}),
        "batches": {"kind": "bucketed", "tokens": 60},
        "model": model,
        "schedule": {"kind": "constant"},
        "train": {"updates": 2},
    }


def test_a_run_on_a_language_is_set_beside_the_truth(unspool, tmp_path):
    data = {"kind": "language", "language": {"kind": "agreement"}, "train": 50, "valid": 5}
    us.train(recipe(data, {"kind": "transformer_lm", "layers": 1, **TINY}), tmp_path / "run")
    argv = ("diagnose", "exposure", tmp_path / "run", "--lengths", "1", "2", "--texts", "40")
    status, out, _ = unspool(*argv)
    assert status == 0
    assert out.startswith("KL from the truth, nats per token, on sentences of its language")
    assert "lost" in out


@pytest.mark.parametrize("kind", ["pairs", "texts"])
def test_a_run_is_measured_on_what_it_was_validated_on(unspool, tmp_path, kind):
    task = {"kind": "task", "task": {"kind": "copy"}, "train": 50, "valid": 9}
    (tmp_path / "lines.txt").write_text("abcdefgh abcdefgh\n" * 30)
    lines = {"kind": "lines", "train": str(tmp_path / "lines.txt"), "valid_lines": 5}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    data, model = {
        "pairs": (task, {"kind": "transformer_seq2seq", **layers, **TINY}),
        "texts": (lines, {"kind": "transformer_lm", "layers": 1, **TINY}),
    }[kind]
    us.train(recipe(data, model, {"kind": "characters"}), tmp_path / "run")
    status, out, err = unspool("diagnose", "exposure", tmp_path / "run", "--lengths", "1")
    assert (status, err) == (0, "")
    assert f"on the run's validation {kind}" in out
