import os
import resource
import subprocess
import sys

import pytest

KEPT = """
import sys
import numpy as np
from unspool.engine.kernel import c_callback, entry
from numba import carray, types
def doubled(x):
    return x + x
def filled(address: int) -> None:
    pass
made = entry(doubled)
assert made(np.float32(4)) == 8
assert made(np.arange(3)).tolist() == [0, 2, 4]
there = c_callback(types.void(types.int64), filled)
assert there.address
print(sum(made.stats.cache_hits.values()), there.cache_hits, "numba.np.arraymath" in sys.modules)
"""


def test_cached_code_is_loaded_without_importing_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    script = tmp_path / "script.py"
    script.write_text(KEPT)

    def run():
        return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout

    assert run() == "0 0 True\n"
    assert run() == "2 1 False\n"


CLOSURES = """
import sys
from unspool.engine.kernel import entry, kernel
def times(factor):
    @kernel
    def power(x):
        for _ in range(10):
            {steps}
        return x
    def call(x):
        return power(x) + power(x + 1)
    call.__qualname__ = f"times_{{factor}}"  # the cache tells entries apart by their names
    return entry(call)
for factor in map(int, sys.argv[1:]):
    def expected(x):
        for _ in range(600):
            x = x * factor % 1000003 + 1
        return x
    made = times(factor)
    assert made(5) == expected(5) + expected(6), factor
    print(sum(made.stats.cache_hits.values()))
"""


def test_closures_that_different_processes_compiled_are_told_apart(tmp_path, monkeypatch):
    """They are too long to be inlined, and both are the first function of their name in their process."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    script = tmp_path / "script.py"
    script.write_text(CLOSURES.format(steps="; ".join(["x = x * factor % 1000003 + 1"] * 60)))

    def run(*factors):
        command = [sys.executable, script, *factors]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert run("3") == run("7") == "0\n"
    assert run("3", "7") == "1\n1\n"


SMALL = """
import warnings
from unspool.engine.kernel import entry
def doubled(x):
    return x + x
def tripled(x):
    return x + x + x
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    first, second = entry(doubled), entry(tripled)
    assert (first(4), second(4)) == (8, 12)
said = [str(it.message) for it in caught if "compiled code is not cached" in str(it.message)]
print(sum(first.stats.cache_hits.values()), len(said), *said)
"""


@pytest.fixture
def small(tmp_path):
    """Run a program that compiles two functions: how many were found on disk, and its warnings."""
    script = tmp_path / "script.py"
    script.write_text(SMALL)

    def run(limit=None, **env):
        def before():
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        env = {name: it for name, it in os.environ.items() if name != "NUMBA_CACHE_DIR"} | env
        done = subprocess.run(
            [sys.executable, "-B", script], capture_output=True, text=True, env=env, preexec_fn=before
        )
        assert done.returncode == 0, done.stderr
        hits, warned, *said = done.stdout.split(maxsplit=2)
        return int(hits), int(warned), "".join(said)

    return run


def test_kernels_are_cached_in_a_private_folder_of_the_user(small, tmp_path):
    home, umask = tmp_path / "cache", os.umask(0o002)
    try:
        assert small(UNSPOOL_CACHE=str(home)) == (0, 0, "")
        assert small(UNSPOOL_CACHE=str(home)) == (1, 0, "")
    finally:
        os.umask(umask)
    folders = {path.parent for path in home.rglob("*.nbc")}
    assert folders
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in folders)
    assert not list(tmp_path.glob("__pycache__/*.nb*"))


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_can_write_to_is_not_read(small, tmp_path, mode):
    home = tmp_path / "cache"
    assert small(UNSPOOL_CACHE=str(home)) == (0, 0, "")
    (folder,) = {path.parent for path in home.rglob("*.nbc")}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    folder.chmod(mode)
    hits, warned, said = small(UNSPOOL_CACHE=str(home))
    assert (hits, warned) == (0, 1)
    assert "other users may write into the folder" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    folder.chmod(0o700)
    assert small(UNSPOOL_CACHE=str(home))[0] == 1


def test_a_cache_folder_that_others_can_write_to_is_not_written(small, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    hits, warned, said = small(NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (hits, warned) == (0, 1)
    assert f"other users may replace the folder: chmod go-w {tmp_path / 'cache'}" in said
    assert not list(tmp_path.rglob("*.nb*"))


def test_a_full_disk_is_warned_of_once_and_kernels_still_run(small, tmp_path):
    hits, warned, said = small(limit=0, UNSPOOL_CACHE=str(tmp_path / "cache"))
    assert (hits, warned) == (0, 1)
    assert "File too large" in said


def test_a_damaged_file_of_the_cache_is_compiled_again(small, tmp_path):
    home = tmp_path / "cache"
    small(UNSPOOL_CACHE=str(home))
    for path in home.rglob("*.nb*"):
        path.write_bytes(path.read_bytes()[:7])
    assert small(UNSPOOL_CACHE=str(home)) == (0, 0, "")
    assert small(UNSPOOL_CACHE=str(home)) == (1, 0, "")


def test_with_jit_switched_off_torch_runs_the_model_and_one_warning_says_so():
    program = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import unspool as us
    model = us.load("bible")
    print(model.engine, us.generate(model, "In the", us.Beam(2), max_new_tokens=2).text)
    us.generate(model, "In the", us.Sample(us.TopP(0.9)), max_new_tokens=2)
print(sum("NUMBA_DISABLE_JIT" in str(it.message) for it in caught))
"""
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("torch ")
    assert done.stdout.endswith("\n1\n")
