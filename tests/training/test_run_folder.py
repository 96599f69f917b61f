import json
import tomllib
import warnings

import pytest
import torch
from safetensors.torch import load_file

from unspool.models import TransformerConfig
from unspool.models.loading import load_folder
from unspool.training.distributed import ProcessGroup
from unspool.training.loop import training_loop
from unspool.training.run_folder import (
    RunFolder,
    average_weights,
    complete_checkpoints,
    last_checkpoint,
    write_recipe,
)


def resume(folder, run):
    folder.restore(run, last_checkpoint(folder.path, run.processes, warnings.warn))


def finish(run, folder):
    resume(folder, run)
    list(training_loop(run, folder))
    folder.finish(run)
    return load_file(folder.path / "model.safetensors")


def test_the_last_weights(tiny, write, tmp_path):
    run = tiny(final="last")
    found = finish(run, RunFolder(tmp_path))
    assert all(torch.equal(found[name], it) for name, it in run.model.state_dict().items())


def test_the_best_weights_are_spared_and_published(tiny, write, tmp_path):
    run = tiny(dropout=0.0, lr=0.02, updates=30, validate_every=1, checkpoint_every=100, keep=1)
    valids = []
    folder = RunFolder(tmp_path)
    resume(folder, run)
    for done in training_loop(run, folder):
        valids.append(done.valid)
        if done.clock.update == 20:
            with torch.no_grad():
                run.model.head.weight.add_(3.0 * torch.randn_like(run.model.head.weight))  # spoil it
    folder.finish(run)
    best = 1 + min(range(30), key=valids.__getitem__)
    assert best < 30
    assert [it.update for it in complete_checkpoints(tmp_path)] == [best, 30]
    found, kept = load_file(tmp_path / "model.safetensors"), complete_checkpoints(tmp_path)[0].weights()
    assert all(torch.equal(found[name], kept[name]) for name in kept)


def test_the_mean_of_the_last_checkpoints(tiny, write, tmp_path):
    run = tiny(final="average", average=3, checkpoint_every=2, keep=1, updates=10)
    found = finish(run, RunFolder(tmp_path))
    kept = complete_checkpoints(tmp_path)
    assert [it.update for it in kept] == [6, 8, 10]
    for name in found:
        expected = torch.stack([it.weights()[name] for it in kept[-3:]]).mean(0)
        torch.testing.assert_close(found[name], expected)


def test_mean_by_hand():
    a = {"w": torch.tensor([1.0, 2.0]), "index": torch.tensor([1])}
    b = {"w": torch.tensor([3.0, 6.0]), "index": torch.tensor([2])}
    assert {name: it.tolist() for name, it in average_weights([a, b]).items()} == {
        "w": [2.0, 4.0],
        "index": [2],
    }
    assert average_weights([a, b])["w"].dtype == torch.float32


def test_a_stop_between_counts_for_no_mean(tiny, write, tmp_path):
    run = tiny(checkpoint_every=4, updates=8)
    folder = RunFolder(tmp_path)
    resume(folder, run)
    updates = training_loop(run, folder, is_stopping=lambda: run.progress.update >= 5)
    for _ in range(6):
        next(updates)
    assert [(it.update, it.about["regular"]) for it in complete_checkpoints(tmp_path)] == [
        (4, True),
        (6, False),
    ]


def test_the_model_of_an_unfinished_run_can_be_loaded(tmp_path, tiny):
    config = TransformerConfig(
        **{"vocab_size": 11, "width": 8, "layers": 1, "heads": 2, "kv_heads": 2, "head_width": 4},
        **{"inner_width": 8, "context": 16},
    )
    run = tiny(valid=False, updates=3, checkpoint_every=1, model=config.build())
    folder = RunFolder(tmp_path)
    resume(folder, run)
    for done in training_loop(run, folder):
        loaded = load_folder(tmp_path)
        assert done.saved
        assert all(torch.equal(it, run.model.state_dict()[name]) for name, it in loaded.state_dict().items())
    assert load_folder(tmp_path / "checkpoints" / "00000003").config == config


def test_changed_data_is_noticed(tiny, write, tmp_path):
    finish(tiny(), RunFolder(tmp_path, {"train_examples": 7}))
    with pytest.raises(ValueError, match="train_examples was 7, is 8"):
        resume(RunFolder(tmp_path, {"train_examples": 8}), tiny())


def test_a_file_system_without_links(tiny, write, tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError("no links here")

    monkeypatch.setattr("os.link", refuse)
    run = tiny(final="last", updates=3)
    found = finish(run, RunFolder(tmp_path))
    assert all(torch.equal(found[name], it) for name, it in run.model.state_dict().items())
    assert json.loads((tmp_path / "last.json").read_text()) == {"checkpoint": "00000003"}


def test_a_checkpoint_tells_where_the_run_comes_from(tiny, write, tmp_path):
    finish(tiny(updates=3), RunFolder(tmp_path, origin={"recipe": {"seed": 4}}))
    assert last_checkpoint(tmp_path, ProcessGroup(), pytest.fail).about["recipe"] == {"seed": 4}


def test_what_is_none_is_left_out_of_the_recipe(tmp_path):
    write_recipe(tmp_path, {"train": {"betas": (0.9, 0.98), "patience": None}, "hooks": [{"x": None}]})
    found = tomllib.loads((tmp_path / "recipe.toml").read_text())
    assert found == {"train": {"betas": [0.9, 0.98]}, "hooks": [{}]}


def test_the_recipe_stands_below_what_was_changed(tmp_path):
    write_recipe(tmp_path, {"seed": 2}, ["after update 3: seed was 1, is 2", "another"])
    assert (tmp_path / "recipe.toml").read_text() == (
        "# after update 3: seed was 1, is 2\n# another\nseed = 2\n"
    )
    assert [it.name for it in tmp_path.iterdir()] == ["recipe.toml"]
