"""From a large file to the first token: seconds and memory, beside llama.cpp.

    python benchmarks/load.py                             # about a billion random weights, Q4_0 and Q8_0
    python benchmarks/load.py --folder files --types q4_0 --json out/load.json
    python benchmarks/load.py --file model.gguf           # a file of your own

The file is made on the spot (random bytes with scales that make sense, one tensor after the other) and kept if
a folder is named. Every engine runs in a process of its own, whose memory is looked at after a prompt of 16
tokens and the text behind it; the file is in the system's cache. unspool, which keeps the kernels that it
compiles, is started twice, and both are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from gguf import GGMLQuantizationType
from rich.console import Console

from peers.gguf_writing import LlamaShape, write_random_llama
from peers.lineup import Contender, llama_cpp, llama_python, unspool
from peers.process import EngineFailedError
from peers.starting import start
from peers.tables import Start, start_table

PROMPT = [1, *range(300, 315)]
CONTEXT = 256


def lineup(file: Path, engines: list[str], python: str | None, console: Console) -> list[Contender]:
    weights = {
        "as stored": ("compiled", "as stored"),
        "int8": ("compiled", "int8"),
        "float32": ("torch", "float32"),
    }
    found = [unspool(file, name, *how) for name, how in weights.items()]
    try:
        found.append(llama_cpp(file, "as stored", CONTEXT, llama_python(python)))
    except FileNotFoundError as error:
        console.print(f"llama.cpp is left out: {error}", style="yellow", markup=False)
    return [it for it in found if it.name.lower().startswith(tuple(name.lower() for name in engines))]


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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, help="measure this GGUF file instead of random ones")
    parser.add_argument("--folder", type=Path, help="where files are made and kept; default: nowhere")
    parser.add_argument("--types", nargs="+", choices=["q4_0", "q8_0"], default=["q4_0", "q8_0"])
    parser.add_argument("--layers", type=int, default=LlamaShape.layers)
    parser.add_argument("--width", type=int, default=LlamaShape.width)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--engines",
        nargs="+",
        default=["unspool as stored", "unspool int8", "llama.cpp"],
        help='how their names begin; "unspool float32" is there, too, and takes 4.4 GB',
    )
    parser.add_argument("--llama-python", help="default: that of the environment beside this one, *-llama")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    console = Console(width=120)
    shape = LlamaShape(layers=args.layers, width=args.width)
    found: dict[str, dict[str, Start]] = {}
    with ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for kind in [args.file.name] if args.file else args.types:
            file = args.file or folder / f"random-{shape.layers}x{shape.width}-{kind}.gguf"
            if not file.exists():
                folder.mkdir(parents=True, exist_ok=True)
                write_random_llama(file, shape, GGMLQuantizationType[kind.upper()])
            contenders = lineup(file.resolve(), args.engines, args.llama_python, console)
            found[kind] = measure(contenders, args.threads, console)
            size = f"{file.stat().st_size / 1e6:.0f} MB, {args.threads} thread(s)"
            console.print(start_table(f"{file.name}, {size}", found[kind]))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        costs = {kind: {name: asdict(cost) for name, cost in its.items()} for kind, its in found.items()}
        args.json.write_text(json.dumps(costs, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
