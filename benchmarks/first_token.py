"""From nothing to the first token: a GGUF file read for the first time, then from the cache.

    python benchmarks/first_token.py

Each run is a process of its own. Importing torch comes before the clock starts, and is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import json, sys, time
start = time.perf_counter(); import torch; torch_seconds = time.perf_counter() - start
start = time.perf_counter()
import unspool as us
model = us.load(sys.argv[1])
loaded = time.perf_counter() - start
next(us.stream(model, "The first word is", us.Greedy(), max_new_tokens=1))
print(json.dumps({"import torch": torch_seconds, "load": loaded, "first token": time.perf_counter() - start}))
"""


def run(model: str, cache: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, model],
        env={**os.environ, "UNSPOOL_CACHE": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"first time": [], "from the cache": []}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as cache:
            found["first time"].append(run(args.model, cache))
            found["from the cache"].append(run(args.model, cache))
    for name, rounds in found.items():
        for key in ("import torch", "load", "first token"):
            values = [seconds[key] for seconds in rounds]
            spread = f"{min(values):.2f}–{max(values):.2f}"
            print(f"{name:15} {key:13} {statistics.median(values):5.2f} s   ({spread})")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
