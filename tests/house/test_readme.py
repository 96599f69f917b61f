"""What the README shows is what happens: its Python runs, its commands run and print what it says they print.

Python fences run in order, in one namespace; an expression with a value behind it (`1 + 1  # 2`) must have that value.
In console fences, lines that start with "$ unspool" are run;
the lines after them are what they must print, but for a fence after the comment `<!-- output varies -->`.
"""

import ast
import os
import re
import shlex
import subprocess
import sys

import pytest

import unspool as us
from unspool.decode.spec import TECHNIQUES

FENCE = re.compile(r"(<!-- output varies -->\n+)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def fences(markdown, language):
    """(content, whether its output is the same every time) of every fence in that language."""
    return [(content, not varies) for varies, found, content in FENCE.findall(markdown) if found == language]


def sessions(console):
    """(command, what it prints) of a console fence; a backslash at the end of a line continues a command."""
    found = []
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", "").partition("\n")
        found.append((command, output.rstrip("\n")))
    return found


def run(command, folder):
    """Run `unspool …` as this interpreter's own module; (status, standard output, standard error)."""
    name, *argv = shlex.split(command)
    assert name == "unspool"
    done = subprocess.run(
        [sys.executable, "-m", "unspool.cli", *argv],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text(encoding="utf-8")


def test_python_runs(readme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snippets = [content for content, _ in fences(readme, "python")]
    assert snippets
    namespace, wrong = {"__name__": "readme"}, {}
    for snippet in snippets:
        wrong |= run_python(snippet, namespace)
    assert wrong == {}


def run_python(snippet, namespace):
    """Run it; {line: value} where an expression has another value than the one behind it."""
    wrong, lines = {}, snippet.splitlines()
    for node in ast.parse(snippet).body:
        code, _, comment = lines[node.end_lineno - 1].partition("  # ")
        if isinstance(node, ast.Expr) and comment.startswith(("'", "tensor(")):
            value = repr(eval(ast.unparse(node), namespace))
            wrong |= {} if value == comment else {code: value}
        else:
            exec(ast.unparse(node), namespace)
    return wrong


def test_a_wrong_value_is_noticed():
    namespace = {}
    snippet = "x = 'a'\nx * 2  # 'aa'\nx * 3  # 'aa'\nx * 3  # what it says\n"
    assert run_python(snippet, namespace) == {"x * 3": "'aaa'"}
    assert namespace["x"] == "a"


def test_commands_run_and_print_what_is_shown(readme, tmp_path):
    ran = 0
    for console, same in fences(readme, "console"):
        for command, shown in sessions(console):
            if command.startswith("unspool "):
                status, out, err = run(command, tmp_path)
                assert status == 0, f"$ {command}\n{err}"
                if same:
                    assert out.rstrip("\n") == shown, f"$ {command}"
                ran += 1
    assert ran


def test_fences_and_sessions_are_found():
    markdown = (
        "```python\nx = 1\n```\ntext\n```console\n$ unspool a \\\n  b\nout\n\nmore\n$ ls\n```\n"
        "<!-- output varies -->\n```console\n$ unspool c\n```\n"
    )
    assert fences(markdown, "python") == [("x = 1\n", True)]
    (first, same), (second, varies) = fences(markdown, "console")
    assert (same, varies) == (True, False)
    assert sessions(first) == [("unspool a   b", "out\n\nmore"), ("ls", "")]
    assert sessions(second) == [("unspool c", "")]


def test_a_failing_command_is_noticed(tmp_path):
    status, out, err = run("unspool generate --file nowhere.txt", tmp_path)
    assert (status, out) == (2, "")
    assert err.startswith("unspool: ")


def test_the_tree_has_every_room(root, readme):
    (tree,) = (content for content, _ in fences(readme, "text"))
    shown = {name.rstrip("/") for name in re.findall(r"^  (\S+)", tree, re.MULTILINE)}
    there = {path.name for path in (root / "src/unspool").iterdir() if (path / "__init__.py").is_file()}
    files = {path.name for path in (root / "src/unspool").glob("*.py")} - {"__main__.py"}
    assert (there | files) - shown == set()


def test_every_technique_is_in_the_table(readme):
    assert {name for name in TECHNIQUES if f"`{name}`" not in readme} == set()


def test_claims_of_equal_texts_say_for_which_engine_and_search(readme):
    assert "`Speculative`: the same text as `Greedy`, or texts of the same distribution as `Sample`" in readme
    assert "On a CPU its" not in readme
    said = next(part for part in readme.split("\n\n") if "equal to the bit" in part)
    assert "compiled steps" in said
    model = us.load("bible")
    prompts = ["And God said", "In the beginning was"]
    for engine, equal in (("compiled", True), ("torch", False)):
        model.engine = engine
        together = us.generate(model, prompts, us.Greedy(), max_new_tokens=8)
        alone = [us.generate(model, prompt, us.Greedy(), max_new_tokens=8) for prompt in prompts]
        assert [out.tokens for out in together] == [out.tokens for out in alone]
        assert equal <= ([out.logps for out in together] == [out.logps for out in alone])
        for one, other in zip(together, alone, strict=True):
            assert one.logps == pytest.approx(other.logps, abs=1e-4)
