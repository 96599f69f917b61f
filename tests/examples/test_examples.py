"""Every script and notebook of examples/ runs."""

import json
import runpy
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
    "serve_and_call.py": 'get_weather {"city": "Paris"}',
}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.py")))
@pytest.mark.filterwarnings("default")
def test_every_script_runs_and_prints_what_it_is_about(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *SHORT.get(name, ())])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert EXPECTED[name] in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
@pytest.mark.filterwarnings("default")
def test_every_notebook_runs(name):
    cells = json.loads((FOLDER / name).read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    exec(compile("\n".join(code), name, "exec"), {"__name__": "__main__"})


def test_the_readme_lists_every_example():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in FOLDER.iterdir():
        assert path.name == "README.md" or f"]({path.name})" in readme, path.name
