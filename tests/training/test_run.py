import pytest
import torch

import unspool as us
from unspool.models.load import load_folder
from unspool.training import Stopped, train

ROWS = ["ab" * n for n in range(1, 13)] * 4
MODEL = {
    "kind": "transformer_lm",
    **{
        "width": 16,
        "layers": 1,
        "heads": 2,
        "kv_heads": 2,
        "head_width": 8,
        "inner_width": 16,
        "context": 32,
    },
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    monkeypatch.setitem(
        __import__("sys").modules, "matplotlib.figure", None
    )  # it takes longer than these runs
    return {
        "data": {"kind": "lines", "train": str(tmp_path / "text.txt"), "valid_lines": 6},
        "text": {"kind": "characters"},
        "batches": {"kind": "bucketed", "tokens": 128},
        "model": {**MODEL, "dropout": 0.1},
        "schedule": {"kind": "constant", "warmup": 5},
        "train": {"updates": 40, "lr": 0.01, "validate_every": 20, "checkpoint_every": 10},
    }


def test_from_text_to_text(recipe, tmp_path):
    model = train(recipe, tmp_path / "run")
    assert us.generate(model, "abab", us.Greedy(), max_new_tokens=4).text.startswith("ab")
    again = us.load(str(tmp_path / "run"))
    assert us.generate(again, "ab", us.Greedy(), max_new_tokens=4).tokens == (
        us.generate(model, "ab", us.Greedy(), max_new_tokens=4).tokens
    )
    assert {it.name for it in (tmp_path / "run").iterdir()} >= {
        *("recipe.toml", "curves.jsonl", "config.json", "model.safetensors", "tokenizer.json", "last.json"),
        "checkpoints",
    }


def test_without_a_folder_nothing_is_kept(recipe, tmp_path):
    model = train(recipe, changes=["train.updates=2"])
    assert model.vocab_size == 6
    assert {it.name for it in tmp_path.iterdir()} == {"text.txt"}


def test_the_callers_randomness_and_threads_are_left_alone(recipe):
    torch.manual_seed(7)
    expected, threads = torch.rand(2), torch.get_num_threads()
    torch.manual_seed(7)
    train(recipe, changes=["train.updates=1", f"train.threads={threads}"])
    assert torch.equal(torch.rand(2), expected)
    assert torch.get_num_threads() == threads


class StopAt:
    """Interrupts the process it runs in, as Ctrl-C would, after some updates."""

    draws = False

    def __init__(self, update):
        self.update, self.notes = update, []

    def note(self, text):
        self.notes.append(text)

    warn = note

    def follow(self, updates, run):
        import os
        import signal

        for done in updates:
            if done.clock.update == self.update:
                os.kill(os.getpid(), signal.SIGTERM)


def test_stopped_and_resumed_is_bit_equal(recipe, tmp_path):
    whole = train(recipe, tmp_path / "whole")
    with pytest.raises(Stopped, match="after update 8 of 40") as caught:
        train(recipe, tmp_path / "run", watch=StopAt(7))
    assert caught.value.signal == 15
    watch = StopAt(None)
    resumed = train(tmp_path / "run" / "recipe.toml", tmp_path / "run", resume=True, watch=watch)
    assert watch.notes == ["going on after update 8"]
    for name, it in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], it)


def test_a_finished_run_can_be_made_longer(recipe, tmp_path):
    recipe["train"]["final"] = "last"
    long = train(recipe, tmp_path / "long")
    train(recipe, tmp_path / "run", changes=["train.updates=20"])
    longer = train(recipe, tmp_path / "run", resume=True)
    assert all(torch.equal(it, long.state_dict()[name]) for name, it in longer.state_dict().items())


def test_resuming_nothing_begins(recipe, tmp_path):
    model = train(recipe, tmp_path / "run", resume=True, changes=["train.updates=1"])
    assert load_folder(tmp_path / "run").config == model.config


def test_another_run_is_not_written_over(recipe, tmp_path):
    train(recipe, tmp_path / "run", changes=["train.updates=1"])
    with pytest.raises(FileExistsError, match="--resume"):
        train(recipe, tmp_path / "run")


def test_a_failed_start_does_not_block_the_next_one(recipe, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(ValueError, match="is empty"):
        train({**recipe, "data": {**recipe["data"], "train": str(empty)}}, tmp_path / "run")
    train(recipe, tmp_path / "run", changes=["train.updates=2"])
    assert us.load(tmp_path / "run").text is not None


def test_a_damaged_checkpoint_is_said(recipe, tmp_path):
    train(recipe, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "00000040" / "memory.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="going on from checkpoint 00000030"):
        train(recipe, tmp_path / "run", resume=True)


def test_pairs_for_a_language_model_fail_before_training(recipe, tmp_path):
    for name in ("source.txt", "target.txt"):
        (tmp_path / name).write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    recipe["data"] = {
        "kind": "parallel",
        "source": str(tmp_path / "source.txt"),
        "target": str(tmp_path / "target.txt"),
        "valid_lines": 6,
    }
    with pytest.raises(ValueError, match="encoder–decoder"):
        train(recipe, tmp_path / "run")


def test_rows_that_are_too_long_fail_by_name(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"model.context is 8"):
        train(recipe, tmp_path / "run", changes=["model.context=8"])


def test_several_processes_need_a_folder(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="--out"):
        train(recipe)
