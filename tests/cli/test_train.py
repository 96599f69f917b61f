import json
import os
import signal
import subprocess
import sys

import pytest

RECIPE = """seed = 1
[data]
kind = "lines"
train = "{folder}/text.txt"
valid_lines = 4
[tokenizer]
kind = "characters"
[batches]
tokens = 64
[model]
kind = "transformer_lm"
width = 8
layers = 1
heads = 2
kv_heads = 2
head_width = 4
inner_width = 8
context = 32
[train]
updates = 4
log_every = 2
checkpoint_every = 2
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "text.txt").write_text("abcabc\nabc\nbca\ncabcab\n" * 5, encoding="utf-8")
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(folder=tmp_path), encoding="utf-8")
    return path


def test_a_run_and_its_end(unspool, recipe, tmp_path):
    out = tmp_path / "run"
    status, said, err = unspool("train", recipe, "--output", out, "--json")
    assert status == 0
    assert [json.loads(line)["update"] for line in said.splitlines()] == [2, 4]
    assert err.endswith(f'unspool: wrote {out}; try: unspool generate "…" --model {out}\n')
    status, said, err = unspool("train", "--resume", out, "--set", "train.updates=6")
    assert (status, said) == (0, "")
    assert "resuming after update 4" in err
    assert "update 6/6" in err
    status, said, err = unspool("generate", "ab", "--model", out, "--max-new-tokens", "3")
    assert status == 0


def test_a_model_that_fills_places_is_trained_and_decoded_by_all_that_fills_them(unspool, recipe, tmp_path):
    out = tmp_path / "run"
    masked = ["model.kind=masked_lm", "objective.kind=masked", "train.updates=2"]
    status, _, err = unspool("train", recipe, "--output", out, *(it for m in masked for it in ("--set", m)))
    assert status == 0
    hint = f'unspool: wrote {out}; try: unspool generate "…" --model {out} --decoder "MaskPredict()"\n'
    assert err.endswith(hint)
    for decoder in ("MaskPredict()", "MaskPredict(1, lengths=1)", "MaskedDiffusion(3, temperature=1)"):
        asked = ["generate", "ab", "--model", out, "--decoder", decoder, "--max-new-tokens", "5"]
        assert unspool(*asked)[0] == 0
        status, said, _ = unspool(*asked, "--json", "--seed", "1")
        assert (status, len(json.loads(said)["tokens"]) <= 5) == (0, True)
        assert unspool(*asked, "--json", "--seed", "1")[1] == said
    for decoder in ("Greedy()", "Beam(3)", "Sample(TopP(0.9))", "MBR(3)"):
        status, said, err = unspool("generate", "ab", "--model", out, "--decoder", decoder)
        assert (status, said) == (2, "")
        assert err == (
            "unspool: MaskedLM is a masked model and does not generate token by token: decode it with "
            "MaskPredict() or MaskedDiffusion()\n"
        )


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["{recipe}"], "no run folder: give --output RUN"),
        (["{recipe}", "--output", "{recipe}"], "recipe.toml: is a file; give the name of a folder"),
        (["--output", "{folder}/run"], "no recipe"),
        (["{folder}/none.toml", "--output", "{folder}/run"], "there is no such recipe"),
        (["--resume", "{folder}/nothing"], "is not a run folder"),
        (["{recipe}", "--resume", "{folder}/a", "--output", "{folder}/b"], "two run folders"),
        (["{recipe}", "--output", "{folder}/run", "--set", "train.updats=1"], "did you mean 'updates'"),
        (["{recipe}", "--output", "{folder}/run", "--set", "model.context=3"], "model.context is 3"),
        (["{recipe}", "--output", "{folder}/run", "--set", "data.train={folder}/no.txt"], "no.txt"),
    ],
)
def test_errors_are_one_line_and_status_2(unspool, recipe, tmp_path, argv, said):
    status, out, err = unspool("train", *(it.format(recipe=recipe, folder=tmp_path) for it in argv))
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_second_run_in_the_same_folder_is_refused(unspool, recipe, tmp_path):
    argv = ("train", recipe, "--output", tmp_path / "run")
    assert unspool(*argv)[0] == 0
    status, _, err = unspool(*argv)
    assert status == 2
    assert "continue it with --resume" in err
    assert unspool(*argv, "--resume")[0] == 0


def test_a_run_is_resumed_from_its_own_folder(unspool, recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert unspool("train", recipe, "--output", "run", "--set", "data.train=text.txt")[0] == 0
    monkeypatch.chdir(tmp_path / "run")
    status, _, err = unspool("train", "--resume", ".", "--set", "train.updates=6")
    assert status == 0, err
    assert "unspool: after update 4: train.updates was 4, is 6\nunspool: resuming after update 4" in err


def test_a_refused_resume_does_no_harm(unspool, recipe, tmp_path):
    run = tmp_path / "run"
    assert unspool("train", recipe, "--output", run)[0] == 0
    status, _, err = unspool("train", "--resume", run, "--set", "batches.tokens=128")
    assert (status, err.count("\n")) == (2, 1)
    assert "batches.tokens was 64, is 128" in err
    assert unspool("train", "--resume", run)[0] == 0


def test_a_loss_that_is_not_finite_has_its_own_line(unspool, recipe, tmp_path, monkeypatch):
    import unspool.training as room
    from unspool.training import Diverged

    def fail(*args, **options):
        raise Diverged("update 3: the loss is nan")

    monkeypatch.setattr(room, "train", fail)
    status, _, err = unspool("train", recipe, "--output", tmp_path / "run")
    assert (status, err) == (1, "unspool: update 3: the loss is nan\n")


def test_sigterm_writes_a_checkpoint_and_says_how_to_go_on(recipe, tmp_path):
    out = tmp_path / "run"
    argv = [
        "train",
        recipe,
        "--output",
        out,
        "--json",
        "--set",
        "train.updates=100000",
        "--set",
        "train.log_every=1",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "unspool", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    first = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert first["update"] == 1
    assert "unspool: stopped after update " in err
    assert f"resume it with: unspool train --resume {out}" in err
    (last,) = json.loads((out / "last.json").read_text()).values()
    assert f"update {int(last)} of 100000" in err


def test_only_the_first_process_tells_how_to_go_on(unspool, recipe, tmp_path, monkeypatch):
    import unspool.training as room
    from unspool.training import Stopped

    def stop(*args, **options):
        raise Stopped("stopped after update 3 of 9")

    monkeypatch.setattr(room, "train", stop)
    for rank, said in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        status, _, err = unspool("train", recipe, "--output", tmp_path / "run")
        assert (status, err.count("resume it with")) == (130, said)


def test_only_the_first_process_speaks(monkeypatch):
    from unspool.cli.train import reporter
    from unspool.training.reporters import LineReporter, NoReports

    assert isinstance(reporter(True), LineReporter)
    monkeypatch.setenv("RANK", "1")
    assert isinstance(reporter(True), NoReports)


@pytest.fixture
def reward_module(tmp_path, monkeypatch):
    """A module of a recipe's reward that leaves a file behind whenever it is imported."""
    marker = tmp_path / "imported"
    source = f"open({str(marker)!r}, 'w').close()\ndef longer(said, wanted):\n    return len(said)\n"
    (tmp_path / "recipe_code.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "recipe_code", raising=False)
    return marker


CODE = ("--set", 'auxiliary=[{kind="reinforce", reward="recipe_code:longer", prompt=1}]')


@pytest.mark.parametrize("how", ["--dry-run", "--output", "--resume"])
def test_a_recipe_that_names_a_function_needs_trust_code(unspool, recipe, tmp_path, reward_module, how):
    out = tmp_path / "run"
    argv = ["train", recipe, *CODE, "--set", "train.final=last"]
    if how == "--resume":
        assert unspool(*argv, "--output", out, "--trust-code")[0] == 0
        reward_module.unlink()
        del sys.modules["recipe_code"]
        argv = ["train", "--set", "train.updates=6"]
    argv += [how] if how == "--dry-run" else [how, out]
    status, said, err = unspool(*argv)
    assert (status, said) == (2, "")
    assert err.count("\n") == 1
    assert (
        "reward = 'recipe_code:longer' would run Python code of 'recipe_code': allow it with --trust-code"
        in err
    )
    assert not reward_module.exists()
    assert unspool(*argv, "--trust-code")[0] == 0
    assert reward_module.exists()


def test_an_installed_entry_point_needs_no_trust_code(unspool, recipe, tmp_path, reward_module):
    about = tmp_path / "someone-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: someone\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        "[unspool.plugins]\nlonger = recipe_code:longer\n", encoding="utf-8"
    )
    by_name = 'auxiliary=[{kind="reinforce", reward="longer", prompt=1}]'
    for code in (CODE, ("--set", by_name)):
        assert unspool("train", recipe, *code, "--dry-run")[0] == 0
    status, _, err = unspool("train", recipe, "--set", by_name.replace("longer", "shorter"), "--dry-run")
    assert status == 2
    assert "'shorter' is not a known reward" in err
