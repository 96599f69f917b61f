"""Every snippet of the documents about other people's models and engines runs, with the values that it shows."""

import importlib.util
from pathlib import Path

import pytest

import unspool as us

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def readme_runner():
    spec = importlib.util.spec_from_file_location("test_readme", ROOT / "tests/house/test_readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["bring-your-model", "huggingface"])
def test_every_snippet_runs(page, readme_runner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    us.save(us.load("bible"), "my-model", format="huggingface")
    snippets = readme_runner.fences((ROOT / f"docs/{page}.md").read_text(encoding="utf-8"), "python")
    assert snippets
    namespace, wrong = {"__name__": page}, {}
    for snippet, _ in snippets:
        wrong |= readme_runner.run_python(snippet, namespace)
    assert wrong == {}
