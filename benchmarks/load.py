"""Loading time, time to the first token and memory of a large GGUF file, beside llama.cpp.

    python benchmarks/load.py                             # about a billion random weights, Q4_0 and Q8_0
    python benchmarks/load.py --types q4_0 --weights "stored" int8 float32 --json out/load.json
    python benchmarks/load.py --weights float32 --engine torch --alone
    python benchmarks/load.py --file model.gguf           # a file of your own

The file (random bytes with plausible scales) is written on first use and kept in the cache folder. Every engine runs in
its own process; memory is measured after a prompt of 16 tokens and its continuation, with the file in the page cache.
unspool is started twice, because the first start compiles kernels; both are shown.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path

from gguf import GGMLQuantizationType
from rich.console import Console

from peers.gguf_writing import LlamaShape, write_random_llama
from peers.lineup import Contender, llama_cpp, llama_python, unspool
from peers.process import EngineFailedError
from peers.starting import TEXT, start
from peers.tables import MEGA, Start, start_table
from peers.weight_files import FLOAT32_BYTES, INT8_BYTES
from unspool.io import cache_folder, check_disk_space
from unspool.models.loading.gguf_file import open_gguf
from unspool.models.loading.gguf_weights import read_gguf_config

PROMPT = [1, *range(300, 315)]
CONTEXT = 256
WEIGHTS = ("stored", "int8", "float32")
READY, FIRST_TOKEN, FACTOR, LIBRARIES = 5.0, 10.0, 1.2, 500 * MEGA
MOST_OF_A_FILE = 6_000 * 10**6
"""Bytes that a random file may take on the disk."""


def random_file(folder: Path, shape: LlamaShape, kind: str) -> Path:
    """A file that was made before, or is made now."""
    file = folder / f"random-{shape.layers}x{shape.width}-{kind}.gguf"
    if not file.exists():
        numbers = sum(math.prod(size) for _, size in shape.tensors())
        check_disk_space(folder, min(MOST_OF_A_FILE, 2 * numbers))
        write_random_llama(file, shape, GGMLQuantizationType[kind.upper()])
    return file


def lineup(file: Path, args: argparse.Namespace, console: Console) -> list[Contender]:
    found = [unspool(file, weights, args.engine, weights) for weights in args.weights]
    if not args.alone:
        try:
            found.append(llama_cpp(file, "stored", CONTEXT, llama_python(args.llama_python)))
        except FileNotFoundError as error:
            console.print(f"llama.cpp is left out: {error}", style="yellow", markup=False)
    return found


def measure(contenders: list[Contender], threads: int, console: Console) -> dict[str, Start]:
    found = {}
    for contender in contenders:
        try:
            process, cost, before = start(contender, threads, PROMPT)
        except EngineFailedError as error:
            console.print(f"{contender.name} is left out: {error}", style="yellow", markup=False)
            continue
        process.close()
        if before is not None:
            found[f"{contender.name}, the first time"] = before
        found[contender.name] = cost
    return found


def kept_bytes(file: Path, weights: str) -> float:
    """All weights of a file, as they are kept."""
    tensors = open_gguf(file).tensors.values()
    if weights == "stored":
        return sum(tensor.size for tensor in tensors)
    each = {1: FLOAT32_BYTES, 2: INT8_BYTES if weights == "int8" else FLOAT32_BYTES}
    return sum(math.prod(tensor.shape) * each[len(tensor.shape)] for tensor in tensors)


def cached_bytes(file: Path) -> int:
    """Keys and values of the prompt and the text."""
    c, _ = read_gguf_config(open_gguf(file))
    return (len(PROMPT) + TEXT) * c.layers * 2 * c.key_value_heads * c.each_width * 4


def verdict(file: Path, weights: str, cost: Start) -> str:
    """What was wanted, what was found, and whether that is as wanted."""
    most = FACTOR * kept_bytes(file, weights) + cached_bytes(file) + LIBRARIES
    found = (cost.imported + cost.loaded, cost.imported + cost.first_token, cost.memory["resident"])
    good = all(it <= limit for it, limit in zip(found, (READY, FIRST_TOKEN, most), strict=True))
    return (
        f"{weights:10} {'as wanted' if good else 'NOT as wanted'}: ready after {found[0]:.1f} s of {READY:.0f}, "
        f"first token after {found[1]:.1f} of {FIRST_TOKEN:.0f}, "
        f"resident {found[2] / MEGA:.0f} MB of {most / MEGA:.0f}"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, help="measure this GGUF file instead of random ones")
    parser.add_argument(
        "--folder", type=Path, help="where files are made and kept; default: the cache folder"
    )
    parser.add_argument("--types", nargs="+", choices=["q4_0", "q8_0"], default=["q4_0", "q8_0"])
    parser.add_argument("--layers", type=int, default=LlamaShape.layers)
    parser.add_argument("--width", type=int, default=LlamaShape.width)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--weights",
        nargs="+",
        choices=WEIGHTS,
        default=WEIGHTS[:2],
        help="how unspool keeps them; float32 takes 4.4 GB",
    )
    parser.add_argument("--engine", choices=["compiled", "torch"], default="compiled")
    parser.add_argument("--alone", action="store_true", help="without llama.cpp")
    parser.add_argument("--llama-python", help="default: that of the environment beside this one, *-llama")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    args = parsed()
    console = Console(width=120)
    shape = LlamaShape(layers=args.layers, width=args.width)
    found: dict[str, dict[str, Start]] = {}
    for kind in [args.file.name] if args.file else args.types:
        file = args.file or random_file(args.folder or cache_folder() / "benchmarks", shape, kind)
        found[kind] = measure(lineup(file.resolve(), args, console), args.threads, console)
        size = f"{file.stat().st_size / MEGA:.0f} MB, {args.threads} thread(s), {args.engine}"
        console.print(start_table(f"{file.name}, {size}", found[kind]))
        for weights in args.weights:
            if f"unspool {weights}" in found[kind]:
                console.print(verdict(file, weights, found[kind][f"unspool {weights}"]), highlight=False)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        costs = {kind: {name: asdict(cost) for name, cost in its.items()} for kind, its in found.items()}
        args.json.write_text(json.dumps(costs, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
