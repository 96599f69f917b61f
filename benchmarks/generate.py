"""Decoding speed of unspool and other engines: the same weights and prompts in one run, as ratios.

    python benchmarks/generate.py                                          # everything: half an hour
    python benchmarks/generate.py --threads 1 --modes greedy --rounds 3 --json out/generate.json
    python benchmarks/generate.py --engines "llama.cpp q8_0" "unspool int8"

Every engine runs in its own process. The engines take turns, round after round, so that disturbances affect all of them;
a ratio is taken within a round (peers/rounds.py). Hugging Face and CTranslate2 come with the `bench` extra; llama.cpp,
OpenVINO GenAI, ONNX Runtime GenAI and vLLM's CPU build with `make peers`. Missing engines are skipped with a message.

Memory is that of the process after a text of 32 tokens; "own" excludes mapped files. "Load" starts after the imports,
and "first token" is load + a prompt of 16 tokens + one token. vLLM compiles for a minute or more at its first start.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from peers.comparison import Comparison, compare, write_json
from peers.lineup import chosen, full_lineup, peer_pythons
from peers.weight_files import folder_of, source_of, write_in_process
from peers.work import parse_mode
from unspool.models.loading.gguf_file import open_gguf
from unspool.tokenization import tokenizer_from_gguf

PROMPTS = [
    "The lighthouse keeper had not spoken to anyone for eleven days when the radio began to hum, and what it said",
    "In order to understand why the bridge fell, the engineers first had to agree on what had been holding it up:",
    "A recipe for a good winter soup begins with bones and patience. First you roast the bones until they are brown,",
    "The committee met on Tuesday to discuss the budget, which had grown in ways that nobody present could explain, so",
    "She opened the letter on the train, between two stations, with the fields going by, and read the first line:",
    "Photosynthesis is the process by which plants turn light into sugar. It takes place in the chloroplasts, where",
    "def moving_average(values, window):\n    '''Return the mean of every window of values.'''\n    result = []\n    for i",
    "My grandfather used to say that a clock that has stopped is right twice a day, but a clock that runs slow is",
]
MODES = ("greedy", "top-p 0.9", "greedy x8", "beam 4")


def prompts_of(source: Path, length: int) -> list[list[int]]:
    """The prompts as ids, cut or repeated to one length."""
    codec = tokenizer_from_gguf(open_gguf(source).metadata)
    ids = [codec.encode(text) for text in PROMPTS]
    return [(row * (length // len(row) + 1))[:length] for row in ids]


def main() -> int:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2", help="a GGUF file or a model package")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, min(2, cores)}))
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=64, help="prompts are cycled to this length")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", nargs="+", type=parse_mode, default=[parse_mode(it) for it in MODES])
    parser.add_argument("--engines", nargs="+", help="how their names begin; default: all")
    parser.add_argument("--llama-python", help="default: that of the environment beside this one, *-llama")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    console = Console(width=120)

    source = source_of(args.model)
    folder = folder_of(source)
    pythons = {peer: python for peer, python in peer_pythons().items() if peer != "llama"}
    write_in_process(source, folder, pythons)
    context = -(-(args.prompt_tokens + args.new_tokens) // 256) * 256
    contenders, absent = full_lineup(source, folder, context, args.llama_python)
    for name, reason in absent.items():
        console.print(f"{name} is left out: {reason}", style="yellow", markup=False)
    contenders = chosen(contenders, args.engines)
    prompts = prompts_of(source, args.prompt_tokens)
    comparison = Comparison(args.model, args.modes, prompts, args.new_tokens, args.rounds)
    found = {threads: compare(comparison, contenders, threads, console) for threads in args.threads}
    if args.json:
        write_json(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
