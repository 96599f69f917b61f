"""What the study of remedies asks for can be trained, and its pairs are those it says."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from unspool.training.recipe import parse_recipe

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/exposure.py"


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("benchmarks_exposure", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def translation(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "PAIRS", 12)
    monkeypatch.setattr(study, "HELD_OUT", {"valid": 2, "test": 3})
    lines = [f"the {word} sleeps now\tdie {word} schläft jetzt\tby somebody" for word in "abcdefghijklmn"]
    (tmp_path / "pairs.txt").write_text("\n".join(["Go.\tGeh.", *lines, *lines, ""]), encoding="utf-8")
    return study.Translation(tmp_path / "pairs.txt", tmp_path)


def test_short_pairs_are_split_and_none_is_there_twice(translation):
    sets = {
        name: (translation.folder / f"{name}.tsv").read_text(encoding="utf-8") for name in ("train", "test")
    }
    assert "Geh." not in "".join(sets.values())
    assert [len(it.splitlines()) for it in sets.values()] == [7, 3]
    assert not set(sets["train"].splitlines()) & set(sets["test"].splitlines())


def test_every_recipe_can_be_read(study, translation):
    for task in (study.Language(), study.Dates(), translation):
        settings = study.recipe(task, 2, 10)
        teacher = task.teacher(settings)
        assert (teacher is None) == isinstance(task, study.Language)
        for tables in study.remedies(task, teacher and "a-run").values():
            parse_recipe({**task.later(settings), **tables})
        if teacher is not None:
            assert teacher["model"]["width"] == 2 * settings["model"]["width"]
            parse_recipe(teacher)


def test_the_learning_rate_stays_where_it_fell_to(study, translation):
    first = study.recipe(translation, 1, 1000)
    base, later = parse_recipe(first), parse_recipe(translation.later(first))
    fallen = base.train.lr * base.schedule(1000, 1000)
    assert fallen == pytest.approx(later.train.lr * later.schedule(1001, 1300))


@pytest.mark.parametrize(
    ("asked", "said"), [([], "--pairs is not given"), (["--pairs", "no.txt"], "no.txt is")]
)
def test_pairs_that_are_not_there_are_one_line(asked, said):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "translation", *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
