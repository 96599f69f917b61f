import subprocess
import sys

from unspool.kernels.entry_cache import EntryCache
from unspool.kernels.kernel import entry

KEPT = """
import sys
import numpy as np
from unspool.kernels.kernel import callback, entry
from numba import carray, types
def doubled(x):
    return x + x
def filled(address: int) -> None:
    pass
made = entry(doubled)
assert made(np.float32(4)) == 8
assert made(np.arange(3)).tolist() == [0, 2, 4]
there = callback(types.void(types.int64), filled)
assert there.address
print(sum(made.stats.cache_hits.values()), there.cache_hits, "numba.np.arraymath" in sys.modules)
"""


def test_what_is_kept_is_found_without_getting_ready_to_compile(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    script = tmp_path / "script.py"
    script.write_text(KEPT)

    def run():
        return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout

    assert run() == "0 0 True\n"
    assert run() == "2 1 False\n"


def test_entries_are_kept_there():
    assert isinstance(entry(lambda x: x)._cache, EntryCache)
