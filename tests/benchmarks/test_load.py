"""A random file from the command line to a table, with the engine that is always there."""

import json
import subprocess
import sys
from pathlib import Path


def test_a_small_random_file_is_made_and_measured(tmp_path):
    script = Path(__file__).resolve().parents[2] / "benchmarks/load.py"
    options = ["--layers", "1", "--width", "64", "--types", "q8_0", "--threads", "1"]
    options += ["--folder", tmp_path, "--json", tmp_path / "load.json", "--weights", "float32"]
    options += ["--engine", "torch", "--alone"]
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "random-1x64-q8_0.gguf" in done.stdout
    assert (tmp_path / "random-1x64-q8_0.gguf").exists()
    assert "as wanted: ready after" in done.stdout  # or not, on a busy machine
    found = json.loads((tmp_path / "load.json").read_text(encoding="utf-8"))["q8_0"]
    assert found.keys() == {"unspool float32", "unspool float32, the first time"}
    for cost in found.values():
        assert 0 < cost["loaded"] < cost["first_token"]
        assert cost["memory"]["peak"] >= cost["memory"]["resident"] > 0
