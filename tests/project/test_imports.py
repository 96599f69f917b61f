"""Import directions, and packages that are imported only when they are needed."""

import os
import shutil
import subprocess
import sys

import pytest

LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
HEAVY = {
    *("torch", "numpy", "scipy", "transformers", "tokenizers", "safetensors", "gguf"),
    *("jinja2", "rich", "matplotlib", "huggingface_hub"),
}


def lint(folder):
    """Run the contracts of folder/pyproject.toml on folder/src."""
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def copy(root, tmp_path):
    shutil.copytree(root / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    return tmp_path


def test_dependencies_point_one_way(root):
    done = lint(root)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wrong_import_directions_are_found(copy):
    wrong = {
        "interfaces/model.py": "unspool.decode",
        "decode/generate.py": "unspool.models",
        "nn/norms.py": "unspool.heads",
        "models/transformer_lm.py": "unspool.cli",
    }
    for importer, imported in wrong.items():
        with (copy / "src/unspool" / importer).open("a", encoding="utf-8") as file:
            file.write(f"\nimport {imported}\n")
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    for importer, imported in wrong.items():
        module = "unspool." + importer.removesuffix(".py").replace("/", ".")
        assert f"{module} -> {imported} (" in done.stdout


def heavy_after(code):
    """The heavy packages that a fresh interpreter has imported after running the code."""
    script = f"{code}\nimport sys\nprint('\\n' + ' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    "code",
    [
        "import unspool",
        "import unspool; dir(unspool)",
        "import unspool.evaluate, unspool.diagnose; dir(unspool.evaluate)",
        "from unspool.cli import main; assert main(['--help']) == 0",
        "from unspool.cli import main; assert main(['generate', '--help']) == 0",
        "from unspool.cli import main; assert main(['generate']) == 2",
    ],
)
def test_heavy_packages_are_imported_lazily(code):
    assert heavy_after(code) == []


def test_a_heavy_import_is_found():
    assert heavy_after("import numpy") == ["numpy"]
    assert "torch" in heavy_after("import unspool; unspool.Sample")
