"""Every objective trains by a recipe, and a run that was stopped in its midst is resumed bit for bit."""

import json

import pytest
import torch

import unspool as us
import unspool.training.loop as loop
from unspool.objectives import OBJECTIVES

STOPPED_AT = 3
TINY = {"width": 8, "heads": 2, "inner_width": 12, "dropout": 0.1}
TABLES = {
    "attention_focus": {},
    "attention_near": {"cap": 4.0},
    "cross_entropy": {},
    "minimum_risk": {"reward": "exact_match", "samples": 3},
    "reinforce": {"reward": "chrf"},
    "scheduled_sampling": {"decay": {"kind": "linear", "slope": 0.3}},
    "sequence_unlikelihood": {"n": 2},
    "unlikelihood": {},
}


def recipe(auxiliary=(), **train):
    return {
        "seed": 5,
        "data": {"kind": "task", "task": {"kind": "copy"}, "train": 60, "valid": 8},
        "tokenizer": {"kind": "characters"},
        "batches": {"kind": "bucketed", "tokens": 40},
        "model": {"kind": "transformer_seq2seq", "encoder_layers": 2, "decoder_layers": 2, **TINY},
        "auxiliary": list(auxiliary),
        "schedule": {"kind": "constant"},
        "train": {
            **{"updates": 6, "lr": 0.01, "checkpoint_every": 2, "validate_every": 6, "log_every": 1},
            **{"final": "last"},
            **train,
        },
    }


class KilledError(Exception):
    """As a power cut would."""


def killed(monkeypatch, settings, out):
    original = loop.apply_update

    def update(run, **options):
        if run.progress.update == STOPPED_AT:
            raise KilledError
        return original(run, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "apply_update", update)
        with pytest.raises(KilledError):
            us.train(settings, out)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return us.train(recipe(), tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize("kind", TABLES)
def test_a_resumed_run_is_bit_equal(kind, plain, monkeypatch, tmp_path):
    settings = recipe([{"kind": kind, "weight": 0.5, "begin": 1, **TABLES[kind]}])
    whole = us.train(settings, tmp_path / "whole")
    killed(monkeypatch, settings, tmp_path / "killed")
    resumed = us.train(settings, tmp_path / "killed", resume=True)
    for (name, one), other in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    points = [json.loads(line) for line in (tmp_path / "killed/curves.jsonl").read_text().splitlines()]
    assert [it["update"] for it in points if "loss" in it] == [1, 2, 3, 4, 5, 6]
    # It changes what is learnt, from when on it is switched on.
    assert not all(map(torch.equal, whole.state_dict().values(), plain.state_dict().values()))


def test_an_objective_of_weight_zero_changes_nothing(plain, tmp_path):
    off = [{"kind": kind, "weight": 0.0, **table} for kind, table in TABLES.items()]
    with_them = us.train(recipe(off), tmp_path / "off")
    assert all(map(torch.equal, with_them.state_dict().values(), plain.state_dict().values()))


def test_a_student_learns_from_its_teacher(monkeypatch, tmp_path):
    us.train(recipe(), tmp_path / "teacher")
    settings = {**recipe(), "objective": {"kind": "distillation", "teacher": str(tmp_path / "teacher")}}
    whole = us.train(settings, tmp_path / "whole")
    killed(monkeypatch, settings, tmp_path / "killed")
    resumed = us.train(settings, tmp_path / "killed", resume=True)
    assert all(map(torch.equal, whole.state_dict().values(), resumed.state_dict().values()))


@pytest.mark.parametrize("kind", ["distillation", "minimum_risk", "reinforce", "sequence_unlikelihood"])
def test_batches_that_leave_nothing_to_say_are_passed_over_or_told(kind, tmp_path):
    (tmp_path / "lines.txt").write_text("ab\nabcdefgh\n" * 8)
    lm = {
        **recipe(accumulate=4, updates=1),
        "data": {"kind": "lines", "train": str(tmp_path / "lines.txt")},
        "batches": {"kind": "bucketed", "tokens": 40},
        "model": {"kind": "transformer_lm", "layers": 1, **TINY},
    }
    teacher = {}
    if kind == "distillation":
        us.train(lm, tmp_path / "teacher")
        teacher = {"teacher": str(tmp_path / "teacher")}
    us.train(
        {**lm, "objective": {"kind": kind, "prompt": 5, **teacher}}, tmp_path / "some"
    )  # "ab" is shorter
    with pytest.raises(ValueError, match=r"no row is longer than objective\.prompt"):
        us.train({**lm, "objective": {"kind": kind, "prompt": 20, **teacher}}, tmp_path / "none")


def test_heads_that_are_taught_a_treebank_resume_bit_equal(monkeypatch, tmp_path):
    rows = ["1\tab\t_\t_\t_\t_\t2\tnsubj\t_\t_", "2\tc\t_\t_\t_\t_\t0\troot\t_\t_"]
    (tmp_path / "bank.conllu").write_text("\n".join(["# text = ab c", *rows, "", "# text = ab c", *rows, ""]))
    (tmp_path / "lines.txt").write_text("ab c\nc ab ab\n" * 20)
    settings = {
        **recipe(
            [{"kind": "dependency_heads", "treebank": str(tmp_path / "bank.conllu"), "labels": ["nsubj"]}]
        ),
        "data": {"kind": "lines", "train": str(tmp_path / "lines.txt"), "valid_lines": 4},
        "model": {"kind": "transformer_lm", "layers": 2, **TINY},
    }
    whole = us.train(settings, tmp_path / "whole")
    killed(monkeypatch, settings, tmp_path / "killed")
    resumed = us.train(settings, tmp_path / "killed", resume=True)
    assert all(map(torch.equal, whole.state_dict().values(), resumed.state_dict().values()))


def test_every_kind_is_tried():
    assert set(TABLES) | {"dependency_heads", "distillation"} <= set(OBJECTIVES)


@pytest.mark.parametrize("said", ["raise KeyError('no')", "return float('nan')"])
def test_a_reward_that_fails_stops_the_run_and_leaves_the_last_checkpoint(said, tmp_path, monkeypatch):
    (tmp_path / "bad_reward.py").write_text(f"def bad(said, wanted):\n    {said}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "bad_reward", raising=False)
    table = {"kind": "reinforce", "reward": "bad_reward:bad", "begin": 4}
    with pytest.raises(
        ValueError, match=r"the reward 'bad_reward:bad' (failed with KeyError|is nan)"
    ) as caught:
        us.train(recipe([table]), tmp_path / "run", trust_code=True)
    assert "\n" not in str(caught.value)
    assert json.loads((tmp_path / "run/last.json").read_text()) == {"checkpoint": "00000004"}
    us.load(tmp_path / "run")


def test_what_does_not_go_together_is_refused_before_anything_is_trained(tmp_path):
    recurrent = {
        **recipe([{"kind": "reinforce"}]),
        "data": {"kind": "language", "train": 50, "valid": 5},
        "batches": {"kind": "packed", "rows": 2, "length": 6},
        "model": {"kind": "rnn_lm", "width": 8, "layers": 1},
    }
    del recurrent["tokenizer"]
    near = {
        **recurrent,
        "auxiliary": [{"kind": "attention_near"}],
    }
    with pytest.raises(ValueError, match="needs a Transformer, but RNNLM"):
        us.train(near, tmp_path / "near")
    with pytest.raises(ValueError, match="cannot import the module 'no_such_thing'"):
        us.train(
            recipe([{"kind": "reinforce", "reward": "no_such_thing:f"}]), tmp_path / "reward", trust_code=True
        )
    for name in ("carried", "near", "reward"):
        assert not (tmp_path / name / "checkpoints").exists()
