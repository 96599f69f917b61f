import gzip
from dataclasses import replace

import pytest
import torch

import unspool as us
from unspool.models.loading import load_folder
from unspool.training import Stopped, train
from unspool.training.recipe import parse_recipe
from unspool.training.run_folder import read_curves

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
def recipe(tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(ROWS) + "\n", encoding="utf-8")
    return {
        "data": {"kind": "lines", "train": str(tmp_path / "text.txt"), "valid_lines": 6},
        "tokenizer": {"kind": "characters"},
        "batches": {"kind": "bucketed", "tokens": 128},
        "model": {**MODEL, "dropout": 0.1},
        "schedule": {"kind": "constant", "warmup": 1},
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


def test_bpe_dropout_trains_tokens_that_bpe_merges(recipe):
    bpe = {"kind": "bpe", "vocab_size": 262}
    without, dropout = (train({**recipe, "tokenizer": {**bpe, "dropout": rate}}) for rate in (0.0, 0.5))
    merged = dropout.tokenizer.encode("ababab")
    unmerged = [token for letter in "ababab" for token in dropout.tokenizer.encode(letter)]
    assert len(merged) < len(unmerged)
    assert us.score(dropout, "", unmerged).total > us.score(without, "", unmerged).total + 5


def test_bpe_dropout_is_refused_for_labels(recipe, tmp_path):
    (tmp_path / "text.txt").write_text("good\ta b\nbad\tc d\n" * 20, encoding="utf-8")
    labelled = {
        **recipe,
        "data": {"kind": "labelled", "train": str(tmp_path / "text.txt")},
        "tokenizer": {"kind": "bpe", "vocab_size": 262, "dropout": 0.1},
        "model": {"kind": "classifier", "encoder": {"kind": "rnn", "width": 8}},
    }
    with pytest.raises(ValueError, match=r"tokenizer\.dropout does not work with labels"):
        train(labelled)


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


@pytest.mark.parametrize("made", [False, True])
def test_a_refused_start_leaves_no_folder_behind(recipe, tmp_path, made):
    if made:
        (tmp_path / "runs/first").mkdir(parents=True)
    with pytest.raises(ValueError, match="needs a source and a target"):
        train({**recipe, "model": {"kind": "rnn_seq2seq", "width": 8}}, tmp_path / "runs/first")
    assert (tmp_path / "runs").exists() == made
    assert not made or not list((tmp_path / "runs/first").iterdir())


def test_a_refused_start_leaves_what_was_there(recipe, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="needs a source and a target"):
        train({**recipe, "model": {"kind": "rnn_seq2seq", "width": 8}}, tmp_path / "run")
    assert (tmp_path / "run/notes.txt").read_text() == "mine"


class StopAt:
    """Interrupts the process it runs in, as Ctrl-C would, after some updates."""

    has_progress_bar = False

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
        train(recipe, tmp_path / "run", reporter=StopAt(7))
    assert caught.value.signal == 15
    reporter = StopAt(None)
    resumed = train(tmp_path / "run" / "recipe.toml", tmp_path / "run", resume=True, reporter=reporter)
    assert reporter.notes == ["resuming after update 8"]
    for name, it in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], it)


def test_a_finished_run_can_be_made_longer(recipe, tmp_path):
    recipe["train"]["final"] = "last"
    long = train(recipe, tmp_path / "long")
    train(recipe, tmp_path / "run", changes=["train.updates=20"])
    longer = train(recipe, tmp_path / "run", resume=True)
    assert all(torch.equal(it, long.state_dict()[name]) for name, it in longer.state_dict().items())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("batches.tokens=64", "batches.tokens was 128, is 64"),
        ("model.width=32", "model.width was 16, is 32"),
        ("model.kind=rnn_lm", "model.kind was 'transformer_lm'|lacks|not a known key"),
        ("tokenizer.kind=words", "tokenizer.kind was 'characters', is 'words'"),
        ("seed=9", "seed was 0, is 9"),
        ("data.valid_lines=7", "data.valid_lines was 6, is 7"),
        ("train.accumulate=2", "train.accumulate was 1, is 2"),
        ("train.updates=5", "has done 20 updates, more than the 5 of the recipe"),
    ],
)
def test_a_refused_change_leaves_the_run_as_it_was(recipe, tmp_path, change, said):
    train(recipe, tmp_path / "run", changes=["train.updates=20"])
    before = contents(tmp_path / "run")
    with pytest.raises(ValueError, match=said):
        train(tmp_path / "run" / "recipe.toml", tmp_path / "run", resume=True, changes=[change])
    assert contents(tmp_path / "run") == before
    train(tmp_path / "run" / "recipe.toml", tmp_path / "run", resume=True)


def test_changed_data_is_refused_and_moved_data_is_not(recipe, tmp_path):
    text = tmp_path / "text.txt"
    train(recipe, tmp_path / "run", changes=["train.updates=10"])
    before, cached = contents(tmp_path / "run"), sorted((tmp_path / "run" / "data").iterdir())
    moved = text.rename(tmp_path / "moved.txt")
    train(recipe, tmp_path / "run", resume=True, changes=[f"data.train={moved}", "train.updates=10"])
    # The same counts of rows, tokens and batches: only what is said differs.
    text.write_text("\n".join(it.replace("ab", "ba") for it in ROWS) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"data\.train = '.*text\.txt' has other content"):
        train(recipe, tmp_path / "run", resume=True, changes=["train.updates=10"])
    assert sorted((tmp_path / "run" / "data").iterdir()) == cached
    assert contents(tmp_path / "run")["model.safetensors"] == before["model.safetensors"]


def test_settings_changed_at_resumption_are_reported_and_recorded(recipe, tmp_path):
    reporter = StopAt(None)
    train(recipe, tmp_path / "run", changes=["train.updates=10"])
    own = tmp_path / "run" / "recipe.toml"
    train(own, tmp_path / "run", resume=True, changes=["train.updates=20", "train.lr=0.5"], reporter=reporter)
    said = ["after update 10: train.updates was 10, is 20", "after update 10: train.lr was 0.01, is 0.5"]
    assert reporter.notes == [*said, "resuming after update 10"]
    # A change that was made before the next checkpoint is said again, but written once.
    train(own, tmp_path / "run", resume=True, changes=["model.dropout=0.0"], reporter=StopAt(None))
    assert own.read_text().splitlines()[:3] == [
        *(f"# {it}" for it in said),
        "# after update 20: model.dropout was 0.1, is 0.0",
    ]
    train(own, tmp_path / "run", resume=True)
    assert own.read_text().count("#") == 3


def test_a_run_goes_on_from_any_folder(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe["data"]["train"] = "text.txt"
    train(recipe, "run", changes=["train.updates=2"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train("../run/recipe.toml", "../run", resume=True, changes=["train.updates=3"])


def test_a_killed_start_can_be_resumed(recipe, tmp_path, monkeypatch):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("unspool.training.run.prepare", killed)
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "run", changes=["train.updates=3"])
        with pytest.raises(KeyboardInterrupt):
            train(recipe, tmp_path / "run", resume=True, changes=["train.updates=4"])
    own = tmp_path / "run" / "recipe.toml"
    assert "updates = 3" in own.read_text()
    train(own, tmp_path / "run", resume=True)


def test_changes_are_made_in_a_recipe_that_was_read(recipe, tmp_path):
    read = parse_recipe(recipe)
    train(read, tmp_path / "run", changes=["train.updates=3"])
    assert len(read_curves(tmp_path / "run")) == 2  # the last point and the last validation
    assert "updates = 3" in (tmp_path / "run" / "recipe.toml").read_text()


def test_a_recipe_with_a_part_replaced_is_refused(recipe, tmp_path):
    with pytest.raises(ValueError, match="give such settings as `changes`"):
        train(replace(parse_recipe(recipe), seed=7), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_as_long_as_its_epochs(recipe, tmp_path):
    del recipe["train"]["updates"]
    train(recipe, tmp_path / "run", changes=["train.epochs=1.5", "train.log_every=1"])
    last = read_curves(tmp_path / "run")[-1]
    assert last["epoch"] >= 1.5 > last["epoch"] * (last["update"] - 1) / last["update"]
    reporter = StopAt(None)
    own = tmp_path / "run" / "recipe.toml"
    train(own, tmp_path / "run", resume=True, changes=["train.epochs=2"], reporter=reporter)
    assert f"after update {last['update']}: train.epochs was 1.5, is 2.0" in reporter.notes
    assert read_curves(tmp_path / "run")[-1]["epoch"] >= 2
    with pytest.raises(ValueError, match="the run has done"):
        train(own, tmp_path / "run", resume=True, changes=["train.epochs=0.5"])


def test_unlikely_settings_give_a_warning(recipe, tmp_path):
    with pytest.warns(UserWarning, match=r"schedule\.warmup=9 is longer than the run of 3 updates"):
        train(recipe, tmp_path / "run", changes=["train.updates=3", "schedule.warmup=9"])


def test_a_packed_file_in_place_of_the_text_is_the_same_data(recipe, tmp_path):
    whole = train(recipe, tmp_path / "whole", changes=["train.updates=20"])
    train(recipe, tmp_path / "run", changes=["train.updates=10"])
    text = tmp_path / "text.txt"
    text.with_suffix(".gz").write_bytes(gzip.compress(text.read_bytes()))
    text.unlink()
    change = [f"data.train={text.with_suffix('.gz')}", "train.updates=20"]
    resumed = train(tmp_path / "run" / "recipe.toml", tmp_path / "run", resume=True, changes=change)
    for name, it in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], it)


@pytest.mark.parametrize("kind", ["rnn_seq2seq", "transformer_seq2seq"])
def test_sources_and_targets_may_have_vocabularies_of_their_own(recipe, tmp_path, kind):
    shape = {"width": 16} if kind == "rnn_seq2seq" else {"width": 16, "heads": 2, "inner_width": 16}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    recipe |= {
        "data": {"kind": "task", "task": {"kind": "dates"}, "train": 300, "valid": 20},
        "tokenizer": {"kind": "separate", "source": {"kind": "words"}, "target": {"kind": "characters"}},
        "model": {"kind": kind, **shape, **layers, "dropout": 0.1},
        "train": {"updates": 12, "lr": 0.01, "checkpoint_every": 5},
    }
    whole = train(recipe, tmp_path / "whole")
    train(recipe, tmp_path / "run", changes=["train.updates=5"])
    resumed = train(recipe, tmp_path / "run", resume=True)
    for name, it in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], it)
    model = us.load(tmp_path / "run")
    assert model.source_vocab_size == model.tokenizer.source.vocab_size > 20
    assert model.vocab_size == model.tokenizer.vocab_size <= 15
    for search in (us.Greedy(), us.Beam(3), us.Sample(us.RepetitionPenalty(1.2))):
        out = us.generate(model, "3 March 1987", search, max_new_tokens=4, seed=1)
        assert set(out.text) <= set("0123456789-<unk>")
    ids = model.tokenizer.encode("1987")
    assert us.score(model, "3 March 1987", "1987").logps == us.score(model, "3 March 1987", ids).logps
    with pytest.raises(ValueError, match=r"tokenizer\.source was"):
        train(recipe, tmp_path / "run", resume=True, changes=["tokenizer.source.kind=characters"])
    (tmp_path / "run" / "source_tokenizer_settings.json").unlink()
    with pytest.raises(
        ValueError, match=r"separate source vocabulary of \d+ tokens, but its tokenizer has none"
    ):
        us.load(tmp_path / "run")


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
    assert us.load(tmp_path / "run").tokenizer is not None


def test_a_damaged_checkpoint_is_reported(recipe, tmp_path):
    train(recipe, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "00000040" / "memory.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="resuming from checkpoint 00000030"):
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
    with pytest.raises(ValueError, match="choose transformer_seq2seq"):
        train(recipe, tmp_path / "run")


def test_rows_that_are_too_long_fail_by_name(recipe, tmp_path):
    with pytest.raises(ValueError, match=r"model.context is 8"):
        train(recipe, tmp_path / "run", changes=["model.context=8"])


def test_several_processes_need_a_folder(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="--out"):
        train(recipe)


@pytest.mark.parametrize(
    ("checkpoint_every", "advice"), [(1, "--resume from the last checkpoint"), (40, "start again")]
)
def test_a_run_that_diverges_names_a_checkpoint_only_if_there_is_one(
    recipe, tmp_path, monkeypatch, checkpoint_every, advice
):
    from unspool.training import Diverged, loop

    update = loop.apply_update

    def diverge(run, **options):
        if run.progress.update == 2:
            with torch.no_grad():
                run.model.embed.weight.fill_(torch.nan)
        return update(run, **options)

    monkeypatch.setattr(loop, "apply_update", diverge)
    recipe["train"]["checkpoint_every"] = checkpoint_every
    with pytest.raises(Diverged, match=f"train.clip, and {advice}$"):
        train(recipe, tmp_path / "run")
