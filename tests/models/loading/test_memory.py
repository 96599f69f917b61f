import subprocess
import sys

import pytest
import torch

from unspool.models.loading.weights import MEMORY_ADVICE, READERS, memory_errors

CHILD = """
import resource, sys
import unspool as us
us.load, us.load("bible")  # whatever is imported, is by now
resource.setrlimit(resource.RLIMIT_AS, (int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize(),) * 2)
try:
    us.load(sys.argv[1], weights=sys.argv[2])
except MemoryError as error:
    print(error)
"""


@pytest.mark.parametrize("weights", READERS)
@pytest.mark.parametrize(
    "shortage",
    [
        MemoryError("Unable to allocate 88.0 MiB for an array"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4456448 bytes"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whoever_lacks_memory_says_so_in_the_same_words(shortage, weights):
    with (
        pytest.raises(MemoryError, match=r"m\.gguf: out of memory") as caught,
        memory_errors("m.gguf", weights),
    ):
        raise shortage
    assert str(caught.value).endswith(MEMORY_ADVICE[weights])
    assert caught.value.__cause__ is shortage


@pytest.mark.parametrize("other", [OSError(2, "No such file"), RuntimeError("shapes"), ValueError("no")])
def test_other_errors_are_what_they_were(other):
    with pytest.raises(type(other)) as caught, memory_errors("m.gguf", "int8"):
        raise other
    assert caught.value is other


def test_torch_says_it_as_is_expected_here():
    with pytest.raises(MemoryError, match="out of memory"), memory_errors("m", "float32"):
        torch.empty(2**50)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process so")
@pytest.mark.parametrize("weights", ["float32", "stored"])
def test_a_process_that_has_no_more_memory(weights):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "smollm2", weights], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("smollm2: out of memory"), done.stderr
