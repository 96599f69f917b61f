"""The walk-throughs of CONTRIBUTING.md and docs/extend.md work, the former in a copy of the repository.

A fence after a line `path`: is written to that file or appended to it; a diff changes it. Commands are run; a
console fence also shows the expected output.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STEP = re.compile(r"(?:^(At the end of )?`([\w/.]+)`:\n\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COPIED = (
    "src",
    "tests",
    "docs",
    "recipes",
    "benchmarks",
    "LICENSE",
    "Makefile",
    "papers.bib",
    "pyproject.toml",
)


def patch(text, diff):
    """Apply a diff; the old lines of each part must be in one place only."""
    for part in diff.split("@@\n"):
        lines = part.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        places = re.findall(rf"^{re.escape(old)}", text, re.MULTILINE)
        assert len(places) == 1, f"{len(places)} places, not one, have {old!r}"
        text = re.sub(rf"^{re.escape(old)}", lambda _, new=new: new, text, flags=re.MULTILINE)
    return text


def follow(page, folder, source=None):
    """Follow the fences of the page in order; return the commands that were run."""
    ran, source = [], source or folder / "src"
    for at_end, path, language, content in STEP.findall(page):
        match language:
            case "python" | "toml":
                with (folder / path).open("a" if at_end else "w", encoding="utf-8") as file:
                    file.write(content)
            case "diff":
                file = folder / path
                file.write_text(patch(file.read_text(encoding="utf-8"), content), encoding="utf-8")
            case "sh":
                for command in content.splitlines():
                    run(command, folder, source)
                    ran.append(command)
            case "console":
                command, _, shown = content.removeprefix("$ ").partition("\n")
                assert run(command, folder, source).rstrip("\n") == shown.rstrip("\n"), command
                ran.append(command)
    return ran


def run(command, folder, source):
    """Its standard output; `python` and `unspool` are this interpreter, with these sources."""
    program, *argv = shlex.split(command)
    programs = {"python": [], "unspool": ["-m", "unspool"]}
    done = subprocess.run(
        [sys.executable, *programs[program], *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{folder}", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture
def copy(root, tmp_path):
    for path in (*map(root.__truediv__, COPIED), *root.glob("*.md")):
        if path.is_dir():
            shutil.copytree(path, tmp_path / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, tmp_path)
    return tmp_path


def test_the_walk_through_adds_a_sampler(root, copy):
    ran = follow((root / "CONTRIBUTING.md").read_text(encoding="utf-8"), copy)
    assert any("pytest" in command for command in ran)
    assert "`TopShare`" in (copy / "docs/techniques.md").read_text(encoding="utf-8")
    assert not (root / "tests/decode/transforms/test_top_share.py").exists()


def test_a_diff_adds_and_replaces_lines():
    assert patch("a\nb\nc\n", " b\n+x\n@@\n a\n+y\n") == "a\ny\nb\nx\nc\n"
    assert patch("a\nb\nc\n", " a\n-b\n+x\n") == "a\nx\nc\n"
    for text in ("a\n", "b\nb\n"):
        with pytest.raises(AssertionError, match="places"):
            patch(text, " b\n+x\n")


@pytest.mark.parametrize(
    "page",
    [
        "`a.py`:\n\n```python\nassert False\n```\n\n```sh\npython a.py\n```\n",
        '```console\n$ python -c "print(1)"\n2\n```\n',
        "`b.py`:\n\n```diff\n nowhere\n+x\n```\n",
    ],
)
def test_a_failing_step_is_found(tree, page):
    folder = tree({"b.py": "x = 1\n"})
    with pytest.raises(AssertionError):
        follow(page, Path(folder))


def test_the_page_about_extensions_works(root, tmp_path):
    page = (root / "docs/extend.md").read_text(encoding="utf-8")
    ran = follow(page, tmp_path, source=root / "src")
    assert any(command.startswith("unspool train") for command in ran)
