"""Speed by context length, and memory: prompt tokens a second, and milliseconds a token behind the prompt.

    python benchmarks/context_lengths.py                                                # everything: an hour
    python benchmarks/context_lengths.py --threads 1 --engines "unspool q4_0" "llama.cpp q4_0" --rounds 5

Engines run in processes of their own and take turns, round after round. Each reads a prompt for one new token and then again for
--new-tokens; the difference of the two times is that of the other tokens. The table shows medians and, in brackets, the
best round. Memory is resident after the longest prompt; "limit" is 1.3 × the file + 0.5 GB, for engines that read one as stored.

`make peers` installs the other engines; llama.cpp also writes the files in Q4_K_M and Q6_K. A width that is no multiple of 256
(SmolLM2: 576) gets Q5_0 and Q8_0 instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from generate import prompts_of
from peers.comparison import machine
from peers.lineup import Contender, full_lineup, peer_pythons
from peers.process import EngineFailedError, EngineProcess
from peers.rounds import REST
from peers.weight_files import folder_of, source_of, write_in_process
from peers.work import Work

LENGTHS = (64, 512, 1536)
MEGA = 1e6
Rounds = list[dict[str, float]]


def measure(engine: EngineProcess, prompt: list[int], new: int) -> dict[str, float]:
    """Prompt tokens a second and milliseconds a token, and the memory afterwards."""
    first = engine.generate(Work([prompt], 1)).seconds
    answer = engine.generate(Work([prompt], 1 + new))
    each = (answer.seconds - first) / new
    return {
        "prompt": len(prompt) / first,
        "ms": 1e3 * each,
        "resident": answer.memory.get("resident", 0) / MEGA,
    }


def started(contender: Contender, threads: int, prompt: list[int]) -> EngineProcess:
    settings = {**contender.settings, "threads": threads}
    process = EngineProcess(contender.module, settings, threads, contender.python)
    process.generate(Work([prompt], 4))
    return process


def compare(
    contenders: list[Contender], threads: int, prompts: dict[int, list[int]], new: int, rounds: int
) -> dict[str, dict[int, Rounds]]:
    """Engine → length of the prompt → rounds."""
    progress, engines = Console(stderr=True), {}
    with ExitStack() as stack:
        for contender in contenders:
            try:
                engines[contender.name] = started(contender, threads, prompts[min(prompts)])
            except EngineFailedError as error:
                progress.print(f"{contender.name} is left out: {error}", style="yellow", markup=False)
                continue
            stack.callback(engines[contender.name].close)
            progress.print(f"{contender.name} is ready", style="dim")
        found: dict[str, dict[int, Rounds]] = {name: {length: [] for length in prompts} for name in engines}
        for number in range(rounds):
            for length, prompt in prompts.items():
                for name, engine in engines.items():
                    time.sleep(REST)
                    found[name][length].append(measure(engine, prompt, new))
            progress.print(f"round {number + 1} of {rounds}", style="dim")
    return found


def table_of(title: str, found: dict[str, dict[int, Rounds]], limits: dict[str, float]) -> Table:
    table = Table(title=title)
    table.add_column("engine", no_wrap=True)
    lengths = list(next(iter(found.values())))
    for length in lengths:
        table.add_column(f"prompt of {length}, tokens/s", justify="right")
    for length in lengths:
        table.add_column(f"ms a token at {length}", justify="right")
    table.add_column("resident MB", justify="right")
    table.add_column("limit", justify="right")
    for name, by_length in found.items():
        speeds = [[it["prompt"] for it in rounds] for rounds in by_length.values()]
        times = [[it["ms"] for it in rounds] for rounds in by_length.values()]
        table.add_row(
            name,
            *(f"{median(it):.0f} ({max(it):.0f})" for it in speeds),
            *(f"{median(it):.1f} ({min(it):.1f})" for it in times),
            f"{by_length[lengths[-1]][-1]['resident']:.0f}",
            f"{limits[name]:.0f}" if name in limits else "",
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2", help="a GGUF file or a model package")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, min(2, os.cpu_count() or 1)}))
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="of the prompt")
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--engines", nargs="+", default=["Hugging Face", "llama.cpp", "unspool"], help="how names begin"
    )
    parser.add_argument("--llama-python", help="default: that of the environment beside this one, *-llama")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)

    source = source_of(args.model)
    folder = folder_of(source)
    write_in_process(source, folder, peer_pythons(args.llama_python))
    context = -(-(max(args.lengths) + args.new_tokens + 1) // 256) * 256
    contenders, absent = full_lineup(source, folder, context, args.llama_python)
    wanted = tuple(name.lower() for name in args.engines)
    for name, reason in absent.items():
        if name.lower().startswith(wanted):
            console.print(f"{name} is left out: {reason}", style="yellow", markup=False)
    contenders = [it for it in contenders if it.name.lower().startswith(wanted)]
    files = {
        it.name: Path(it.settings["file"]) for it in contenders if it.settings.get("weights") == "stored"
    }
    limits = {name: 1.3 * file.stat().st_size / MEGA + 500 for name, file in files.items()}
    prompts = {length: prompts_of(source, length)[0] for length in sorted(args.lengths)}
    results = {}
    for threads in args.threads:
        found = compare(contenders, threads, prompts, args.new_tokens, args.rounds)
        results[threads] = found
        title = f"{args.model}, {threads} thread(s), {args.rounds} rounds; medians (best)"
        console.print(table_of(title, found, limits))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(
            json.dumps({"machine": machine(), "threads": results}, indent=1), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
