"""Time to the first token and memory, by weight format.

    python benchmarks/first_token.py
    python benchmarks/first_token.py --model file.gguf --weights "stored" --engine compiled --threads 2

Each run is a process of its own; formats take turns. Seconds count from the start of the process. "imported" is when
torch and unspool are imported; "libraries, MB" is the resident memory at that time, before numba is imported. Memory is
the peak, and the resident memory after a text of 32 tokens. The first run compiles the kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

CHILD = """
import json, os, sys, time
from pathlib import Path
def since():  # the process began so many seconds ago
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK")
def megabytes(key):
    return int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1]) / 1024
python = since()
import unspool as us
us.load, us.generate, us.Greedy
import torch
torch.set_num_threads(int(sys.argv[4]))
imported, libraries = since(), megabytes("VmRSS")
engine = None if sys.argv[3] == "None" else sys.argv[3]
model = us.load(sys.argv[1], weights=sys.argv[2], engine=engine)
ready = since()
ids = [i % model.vocab_size for i in range(16)]
out = us.generate(model, [ids], us.Greedy(), max_new_tokens=1)
first = since()
out = us.generate(model, [ids], us.Greedy(), max_new_tokens=32)
print(json.dumps({
    "imported": imported, "ready": ready, "first token": first,
    "a token after it": (since() - first) / 32,
    "libraries, MB": libraries, "most resident, MB": megabytes("VmHWM"), "resident, MB": megabytes("VmRSS"),
}))
"""


def run(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", nargs="+", default=["float32", "stored", "int8"])
    parser.add_argument("--engine", default="None")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {weights: [] for weights in args.weights}
    for _ in range(args.rounds):
        for weights, rounds in found.items():
            rounds.append(run(args.model, weights, args.engine, str(args.threads)))
    for weights, rounds in found.items():
        for key in rounds[0]:
            values = [measured[key] for measured in rounds]
            spread = f"{min(values):,.2f}–{max(values):,.2f}"
            print(f"{weights:10} {key:18} {statistics.median(values):8,.2f}   ({spread})")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
