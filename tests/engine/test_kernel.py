import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from numba import types
from numba.core.errors import NumbaError

from unspool.engine.kernel import c_callback, entry, inline_kernel, kernel


@kernel
def twice(x):
    return 2 * x


@inline_kernel
def thrice(x):
    return 3 * x


@entry
def five_times(x):
    return twice(x) + thrice(x)


def test_a_kernel_is_compiled_into_the_entry_that_calls_it():
    assert five_times(4) == 20
    assert five_times.nopython_signatures


def nine_times(x: int) -> int:
    return thrice(thrice(x))


def test_a_callback_is_called_by_its_address():
    made = c_callback(types.int64(types.int64), nine_times)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made.address)(5) == 45


MISSING = {
    "a step of its compiler": "import numba.core.typed_passes as part; del part.NativeLowering",
    "its library of machine code": "import numba.core.codegen as part; part.JITCodeLibrary = print",
    "its way to make functions": "import unspool.engine.numba_internals as part; part._dynfunc = None",
    "what its library does last": """
from unspool.engine.numba_internals import KernelLibrary
KernelLibrary._finalize_final_module = lambda self, another: None""",
    "its cache": "import numba.core.caching as part; del part.FunctionCache",
    "its runtime": "import unspool.engine.numba_internals as part; part.rtsys = None",
    "its callbacks": "import unspool.engine.numba_internals as part; part.CFunc = print",
}
ANYWAY = """
import ctypes
import numba
import numba.core.ccallback
{missing}
from numba import types
from unspool.engine.kernel import c_callback, entry, inline_kernel, kernel
@kernel
def twice(x):
    return 2 * x
@inline_kernel
def thrice(x):
    return twice(x) + x
@entry
def six_times(x):
    return twice(thrice(x))
def nine_times(x: int) -> int:
    return thrice(thrice(x))
assert six_times(2) == 12
made = c_callback(types.int64(types.int64), nine_times)
assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made.address)(5) == 45
print(sum(six_times.stats.cache_hits.values()), made.cache_hits)
"""


NOT_KEPT = {"its cache": "0 0\n", "its callbacks": "1 0\n"}
"""What the second process finds on disk; numba's own cache would read files that another user may have written."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[] if name in ("a step of its compiler", "its cache") else [pytest.mark.long]
        )
        for name in MISSING
    ],
)
def test_kernels_compile_without_each_undocumented_part_of_numba(name, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    script = tmp_path / "script.py"
    script.write_text(ANYWAY.format(missing=MISSING[name]))

    def run():
        return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout

    assert run() == "0 0\n"
    assert run() == NOT_KEPT.get(name, "1 1\n")
    assert not list(tmp_path.glob("__pycache__/*.nbi"))


@kernel
def made(size):
    return np.empty(size).size


@entry
def makes(size):
    return made(size)


def test_a_kernel_that_allocates_is_refused():
    with pytest.raises(NumbaError, match="Only accept returning of array passed"):
        makes(3)


COUNTED = """
import numpy as np
import torch
from numba.core.runtime import rtsys

import unspool as us
from unspool.models.rnn_models import RNNConfig
from unspool.models.transformer_lm import TransformerConfig

shape = {"vocab_size": 5000, "width": 16, "layers": 1}
models = [TransformerConfig(**shape, heads=2, inner_width=16).build(), RNNConfig(**shape).build()]
searches = [us.Greedy(), us.Beam(3), us.Sample(us.TopP(0.9)), us.Sample(us.TopK(5), us.Typical(0.9))]

def decode():
    for model in models:
        for search in searches:
            us.generate(model, [[1, 2, 3], [4]], search, max_new_tokens=4, n=2)

decode()
before = rtsys.get_allocation_stats()
decode()
after = rtsys.get_allocation_stats()
made = after.mi_alloc - before.mi_alloc
assert made > 0
assert made == after.mi_free - before.mi_free
"""


def test_entries_release_each_reference_once():
    """Kernels count no references, entries do: an array that came from one to the other would be freed twice."""
    settings = {**os.environ, "NUMBA_NRT_STATS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
