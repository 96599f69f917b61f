"""A small encoder–decoder beside its peers: the same random weights, the same sources, one run, ratios.

    python benchmarks/translation_speed.py
    python benchmarks/translation_speed.py --threads 1 --modes "beam 5 x32" --rounds 5 --json out/translation.json

A Marian model of 4 + 4 layers, width 256 and 8,000 tokens is made on the spot (peers/marian.py). Every engine runs
in a process of its own and does the same work in turn, round after round; a ratio is taken within a round
(peers/rounds.py). Hugging Face and CTranslate2 come with the `bench` extra.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

from peers.lineup import REFERENCE, Contender
from peers.process import HERE, EngineFailedError, EngineProcess
from peers.rounds import Result, first_difference, measure, result
from peers.starting import Bandwidth, start
from peers.tables import Start, speed_table, start_table
from peers.work import Mode, Work
from unspool.files.cache import cache_folder

DECODERS = ("greedy", "beam 5")
MODES = ("greedy", "beam 5", "greedy x32", "beam 5 x32")
VOCABULARY = 8000


def parse_mode(text: str) -> Mode:
    decoder, _, rows = text.partition(" x")
    if decoder not in DECODERS or not (rows or "1").isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(MODES)}")
    return Mode(decoder, int(rows or 1))


def contenders(folder: Path) -> list[Contender]:
    size = int((folder / "bytes").read_text())
    ours = {"folder": str(folder / "unspool")}
    return [
        Contender(
            REFERENCE, "peers.marian_hugging_face", {"folder": str(folder / "huggingface")}, size, True
        ),
        Contender(
            "CTranslate2", "peers.marian_ctranslate2", {"folder": str(folder / "ctranslate2")}, size, True
        ),
        Contender("unspool torch", "peers.marian_unspool", ours | {"engine": "torch"}, size, True),
        Contender(
            "unspool compiled",
            "peers.marian_unspool",
            ours | {"engine": "compiled"},
            size,
            True,
            prepares=True,
        ),
    ]


def compare(
    threads: int, sources: list[list[int]], args: argparse.Namespace, console: Console
) -> dict[str, Any]:
    engines: dict[str, EngineProcess] = {}
    starts: dict[str, Start] = {}
    results: dict[str, dict[str, Result]] = {}
    with ExitStack() as stack:
        for contender in contenders(args.folder):
            if args.engines and contender.name not in (REFERENCE, *args.engines):
                continue
            try:
                process, cost, _ = start(contender, threads, sources[0])
            except EngineFailedError as error:
                console.print(f"{contender.name} is left out: {error}", style="yellow", markup=False)
                continue
            stack.callback(process.close)
            engines[contender.name], starts[contender.name] = process, cost
        bandwidth = Bandwidth(threads)
        stack.callback(bandwidth.process.close)
        for mode in args.modes:
            work = Work(sources[: mode.rows], args.new_tokens, mode.decoder)
            answers, by_round = measure(engines, work, args.rounds, bandwidth)
            results[str(mode)] = {
                name: result(its, answers.get(REFERENCE), work, starts[name].weight_bytes, by_round)
                for name, its in answers.items()
            }
    console.print(
        speed_table(f"{threads} thread(s), {args.new_tokens} new tokens, {args.rounds} rounds", results)
    )
    console.print(start_table(f"memory and start, {threads} thread(s)", starts))
    for mode, by_engine in results.items():
        for name, its in by_engine.items():
            at = first_difference(its.tokens, by_engine[REFERENCE].tokens)
            if at is not None:
                console.print(f"{mode}: {name} parts from {REFERENCE} at token {at}", markup=False)
    return {
        "starts": {name: asdict(it) for name, it in starts.items()},
        "modes": {mode: {name: asdict(it) for name, it in its.items()} for mode, its in results.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, min(2, os.cpu_count() or 1)}))
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--source-tokens", type=int, default=40, help="sources have about as many")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--modes", nargs="+", type=parse_mode, default=[parse_mode(it) for it in MODES])
    parser.add_argument("--engines", nargs="+", help="their names; default: all")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    args.folder = cache_folder() / "benchmarks" / "marian"
    if not (args.folder / "ctranslate2").exists():
        subprocess.run([sys.executable, "-m", "peers.marian", str(args.folder)], cwd=HERE, check=True)
    dice = Random(0)
    lengths = [
        args.source_tokens + dice.randint(-args.source_tokens // 4, args.source_tokens // 4)
        for _ in range(64)
    ]
    sources = [[dice.randrange(2, VOCABULARY - 1) for _ in range(length)] for length in lengths]
    console = Console(width=120)
    found = {str(threads): compare(threads, sources, args, console) for threads in args.threads}
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
