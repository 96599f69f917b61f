"""Speed of a small encoder–decoder relative to other engines: the same random weights and sources in one run, as ratios.

    python benchmarks/translation_speed.py
    python benchmarks/translation_speed.py --threads 1 --modes "beam 5 x32" --rounds 5 --json out/translation.json

A random Marian model of 4 + 4 layers, width 256 and 8,000 tokens is written first (peers/marian.py). Every engine runs in
its own process; the engines take turns, round after round, and a ratio is taken within a round (peers/rounds.py). Hugging
Face and CTranslate2 come with the `bench` extra.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from random import Random

from rich.console import Console

from peers.comparison import Comparison, compare, write_json
from peers.lineup import REFERENCE, Contender, chosen
from peers.process import HERE
from peers.work import parse_mode
from unspool.io import cache_folder

MODES = ("greedy", "beam 5", "greedy x32", "beam 5 x32")
VOCABULARY = 8000
SOURCES = 64


def lineup(folder: Path) -> list[Contender]:
    size = int((folder / "bytes").read_text())

    def contender(name: str, module: str, kept: str, **settings: str) -> Contender:
        own = {"folder": str(folder / kept), **settings}
        return Contender(name, f"peers.{module}", own, size, exact=True, prepares=kept == "unspool")

    return [
        contender(REFERENCE, "marian_hugging_face", "huggingface"),
        contender("CTranslate2", "marian_ctranslate2", "ctranslate2"),
        contender("unspool torch", "marian_unspool", "unspool", engine="torch"),
        contender("unspool compiled", "marian_unspool", "unspool", engine="compiled"),
    ]


def random_sources(about: int) -> list[list[int]]:
    """Of up to a quarter more or fewer tokens."""
    dice = Random(0)
    lengths = [about + dice.randint(-about // 4, about // 4) for _ in range(SOURCES)]
    return [[dice.randrange(2, VOCABULARY - 1) for _ in range(length)] for length in lengths]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, min(2, os.cpu_count() or 1)}))
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--source-tokens", type=int, default=40, help="sources have about as many")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--modes", nargs="+", type=parse_mode, default=[parse_mode(it) for it in MODES])
    parser.add_argument("--engines", nargs="+", help="how their names begin; default: all")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    folder = cache_folder() / "benchmarks" / "marian"
    if not (folder / "ctranslate2").exists():
        subprocess.run([sys.executable, "-m", "peers.marian", str(folder)], cwd=HERE, check=True)
    console, contenders = Console(width=120), chosen(lineup(folder), args.engines)
    sources = random_sources(args.source_tokens)
    comparison = Comparison("4 + 4 layers of 256", args.modes, sources, args.new_tokens, args.rounds)
    found = {threads: compare(comparison, contenders, threads, console) for threads in args.threads}
    if args.json:
        write_json(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
