"""The comparison of output layers never shows a number that was made with other settings."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="module")
def heads():
    path = Path(__file__).resolve().parents[2] / "benchmarks/heads.py"
    spec = importlib.util.spec_from_file_location("benchmarks_heads", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def said(tmp_path):
    """What the user says: two updates of a tiny language model."""
    for name, lines in (("train.txt", 130), ("test.txt", 4)):
        text = "".join(f"the cat saw {at} dogs\n" for at in range(lines))
        (tmp_path / name).write_text(text, encoding="utf-8")
    options = {"train": tmp_path / "train.txt", "test": tmp_path / "test.txt", "json": tmp_path / "lm.json"}
    options |= {"updates": 2, "width": 4, "limit": 3, "seeds": 1, "heads": "softmax"}

    def words(**changes):
        return ["lm", *(str(it) for key, value in (options | changes).items() for it in (f"--{key}", value))]

    return words


def made():
    """What is saved of a run, but its settings."""
    return {
        "name": "softmax",
        "seed": 1,
        "updates": 2,
        "weights": 10,
        "cpu_seconds": 1.0,
        "perplexity": 12.5,
    }


@pytest.mark.filterwarnings("ignore:tokenizer.vocab_size")  # the tiny text has fewer words than are asked for
def test_a_run_is_made_once(heads, said, tmp_path, monkeypatch, capsys):
    assert heads.main(said()) == 0
    saved = json.loads((tmp_path / "lm.json").read_text(encoding="utf-8"))
    told = saved["softmax | 1"]["settings"]
    assert told["train"]["updates"] == 2
    assert told["model"]["width"] == 4
    assert (told["data"]["train"], told["test"], told["limit"]) == ("train.txt", "test.txt", 3)
    monkeypatch.setattr(heads, "run", lambda *_: pytest.fail("made again"))
    capsys.readouterr()
    assert heads.main(said()) == 0
    assert f"{saved['softmax | 1']['perplexity']:.2f}" in capsys.readouterr().out


def test_files_in_another_folder_are_the_same_files(heads, said, tmp_path):
    args = heads.arguments(said())
    (tmp_path / "lm.json").write_text(
        json.dumps({"softmax | 1": made() | {"settings": heads.settings(args, "softmax", 1)}}),
        encoding="utf-8",
    )
    (tmp_path / "moved").mkdir()
    moved = {
        name: (tmp_path / f"{name}.txt").rename(tmp_path / f"moved/{name}.txt") for name in ("train", "test")
    }
    assert list(heads.held(tmp_path / "lm.json", heads.arguments(said(**moved)))) == ["softmax | 1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.5}, r"train\.lr was 0\.01 and is 0\.5\."),
        ({"updates": 3}, r"train\.updates was 2 and is 3"),
        ({"width": 5}, r"model\.width was 4 and is 5\."),
        ({"limit": 2}, r"limit was 3 and is 2\."),
        ({"seeds": 2, "lr": 0.5}, r"train\.lr"),  # its table would show the old run, too
    ],
)
def test_a_run_with_other_settings_is_an_error(heads, said, tmp_path, monkeypatch, change, message):
    run = made() | {"settings": heads.settings(heads.arguments(said()), "softmax", 1)}
    (tmp_path / "lm.json").write_text(json.dumps({"softmax | 1": run}), encoding="utf-8")
    monkeypatch.setattr(heads, "run", lambda *_: pytest.fail("made again"))
    with pytest.raises(
        SystemExit, match=rf"lm\.json: 'softmax \| 1' was made.*{message}.*another file for --json"
    ):
        heads.main(said(**change))


def test_a_setting_that_only_one_of_them_has_is_named(heads, said, tmp_path):
    told = heads.settings(heads.arguments(said()), "softmax", 1)
    told["model"]["dropouts"] = told["model"].pop("dropout")
    run = made() | {"settings": told}
    (tmp_path / "lm.json").write_text(json.dumps({"softmax | 1": run}), encoding="utf-8")
    with pytest.raises(
        SystemExit, match=r"model.dropout was not there and is 0.2; model.dropouts was 0.2 and is not"
    ):
        heads.main(said())


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"softmax | 1": {"name": "softmax", "seed": 1}}'])
def test_a_file_of_something_else_is_an_error_and_is_left_alone(heads, said, tmp_path, monkeypatch, text):
    monkeypatch.setattr(heads, "run", lambda *_: pytest.fail("made again"))
    (tmp_path / "lm.json").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"lm\.json holds no runs of this comparison: choose another"):
        heads.main(said())
    assert (tmp_path / "lm.json").read_text(encoding="utf-8") == text


def test_a_head_that_is_not_known_is_an_error(heads, said, tmp_path):
    run = made() | {"name": "hardmax", "settings": {}}
    (tmp_path / "lm.json").write_text(json.dumps({"hardmax | 1": run}), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"'hardmax \| 1' is of a head that is not known"):
        heads.main(said())
