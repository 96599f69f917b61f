"""README and guides: their Python runs, and their commands print what the page shows."""

import re

import pytest

import unspool as us

PAGES = (
    "README.md",
    "docs/basis.md",
    "docs/choose-a-decoder.md",
    "docs/coming-from-transformers.md",
    "docs/bring-your-model.md",
    "docs/huggingface.md",
    "docs/grammar.md",
    "docs/rate.md",
)


@pytest.fixture(scope="module")
def documents(script):
    return script("tests/project/documents.py")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_and_prints_what_it_shows(page, root, documents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "my-model" in (root / page).read_text(encoding="utf-8"):
        us.save(us.load("bible"), "my-model", format="huggingface")
    runs, wrong = documents.run_page((root / page).read_text(encoding="utf-8"), tmp_path)
    assert wrong == []
    assert runs


def test_a_wrong_value_is_found(documents):
    namespace = {}
    snippet = "x = 'a'\nx * 2  # 'aa'\nx * 3  # 'aa'\nx * 3  # a comment\n"
    assert documents.run_python(snippet, namespace) == {"x * 3": "'aaa'"}
    assert namespace["x"] == "a"


def test_a_wrong_session_is_found(documents):
    session = ">>> x = 1\n>>> x + 1\n2\n>>> print('a')\nb\n>>> 1 / 0\n"
    wrong, error = documents.run_session(session, {})
    assert wrong == ("print('a')", "a\n")
    assert "ZeroDivisionError" in error[1]


def test_a_failing_command_and_a_wrong_output_are_found(documents, tmp_path):
    page = "```console\n$ unspool generate --prompts nowhere.txt\n$ unspool --help\nnothing\n```\n"
    runs, ((failed, error), (wrong, out)) = documents.run_page(page, tmp_path)
    assert (runs, failed, wrong) == (2, "unspool generate --prompts nowhere.txt", "unspool --help")
    assert error.startswith("unspool: ")
    assert "usage: unspool" in out


def test_fences_and_sessions_are_found(documents):
    markdown = (
        "```python\nx = 1\n```\ntext\n```console\n$ unspool a \\\n  b\nout\n\nmore\n$ ls\n```\n"
        "<!-- output varies -->\n```console\n$ unspool c\n```\n<!-- not run -->\n```python\ny\n```\n"
    )
    assert documents.fences(markdown, "python") == [("x = 1\n", False)]
    first, second = documents.fences(markdown, "console")
    assert (first.varies, second.varies) == (False, True)
    assert documents.sessions(first.content) == [("unspool a   b", "out\n\nmore"), ("ls", "")]
    assert documents.sessions(second.content) == [("unspool c", "")]


def test_batches_are_bit_equal_with_the_compiled_engine_as_the_readme_claims(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert re.search(r"bit-equal[^\n]*", readme)
    model, prompts = us.load("bible"), ["And God said", "In the beginning was"]
    for engine, is_exact in (("compiled", True), ("torch", False)):
        model.engine = engine
        together = us.generate(model, prompts, us.Greedy(), max_new_tokens=8)
        alone = [us.generate(model, prompt, us.Greedy(), max_new_tokens=8) for prompt in prompts]
        assert [out.tokens for out in together] == [out.tokens for out in alone]
        assert is_exact <= ([out.logps for out in together] == [out.logps for out in alone])
        for one, other in zip(together, alone, strict=True):
            assert one.logps == pytest.approx(other.logps, abs=1e-4)
