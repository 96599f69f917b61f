"""Every script and notebook of examples/ runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
SHORT = {
    "train_a_translator.py": ["--updates", "20"],
    "see_exposure_bias.py": ["--updates", "20"],
}
EXPECTED = {
    "fix_a_looping_model.py": "greedy: 4 of 4 texts end in a loop",
    "certificates.py": "accepted",
    "train_a_translator.py": "Beam(5)",
    "see_exposure_bias.py": "16",
    "serve_and_call.py": "king",
}


def run(*command, **options):
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, check=False, **options
    )


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
def test_every_script_runs_and_prints_what_it_is_about(name):
    ran = run(FOLDER / name, *SHORT.get(name, ()))
    assert ran.returncode == 0, ran.stderr
    assert EXPECTED[name] in ran.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_every_notebook_runs(name):
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    ran = run("-", input="\n".join(code))
    assert ran.returncode == 0, ran.stderr


def test_the_readme_lists_every_example():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in FOLDER.iterdir():
        assert path.name == "README.md" or f"]({path.name})" in readme, path.name
