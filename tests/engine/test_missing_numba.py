"""Without numba everything runs on torch, and one warning says so."""

import subprocess
import sys

CODE = """
import sys
sys.modules["numba"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else found(name, *rest)
import unspool as us
model = us.load("bible")
for decoder in (us.Greedy(), us.Sample(us.TopP(0.9)), us.Beam(2)):
    print(us.generate(model, "In the beginning", decoder, max_new_tokens=4, seed=1).tokens)
print(model.engine)
"""


def test_without_numba_one_warning_is_shown_and_torch_decodes():
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert ran.stderr.count("numba is not installed: torch decodes") == 1
    assert ran.stdout.splitlines()[-1] == "torch"
