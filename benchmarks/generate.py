"""unspool beside its peers: the same weights, the same prompts, one run, ratios.

    python benchmarks/generate.py                     # a table
    python benchmarks/generate.py --threads 1 --json out/generate.json

Every engine does the same work in turn, round after round, so that what disturbs the machine disturbs all
of them; a ratio is taken within a round. Hugging Face and CTranslate2 come with the `bench` extra.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import unspool as us
from unspool.adapters.huggingface import to_huggingface

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
Engine = Callable[[list[list[int]], int, "str"], list[list[int]]]
MODES = {"greedy": us.Greedy(), "top-p 0.9": us.Sample(us.TopP(0.9)), "beam 4": "beam"}


def unspool_engine(model: us.TransformerLM) -> Engine:
    def run(prompts: list[list[int]], new: int, mode: str) -> list[list[int]]:
        search = us.parse("Beam(4, length_penalty=Sum())") if mode == "beam 4" else MODES[mode]
        return [list(out.tokens) for out in us.generate(model, prompts, search, max_new_tokens=new, seed=0)]

    return run


def huggingface_engine(twin: torch.nn.Module) -> Engine:
    def run(prompts: list[list[int]], new: int, mode: str) -> list[list[int]]:
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        how = {
            "greedy": {"do_sample": False},
            "top-p 0.9": {"do_sample": True, "top_p": 0.9, "top_k": 0},
            "beam 4": {"do_sample": False, "num_beams": 4, "length_penalty": 0.0},
        }[mode]
        torch.manual_seed(0)
        out = twin.generate(  # type: ignore[operator]
            ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, pad_token_id=0, **how
        )
        return out[:, longest:].tolist()

    return run


def ctranslate2_engine(twin: torch.nn.Module, model: us.TransformerLM, threads: int) -> Engine:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    folder = Path(tempfile.mkdtemp()) / "hf"
    twin.save_pretrained(folder)  # type: ignore[operator]
    model.text.save(folder)  # type: ignore[union-attr]
    special = {
        "bos_token": model.text.bos_token,
        "eos_token": model.text.eos_token,
        "unk_token": model.text.eos_token,
    }  # type: ignore[union-attr]
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special})
    )
    converted = TransformersConverter(str(folder)).convert(str(folder.parent / "ct2"))
    generator = ctranslate2.Generator(converted, intra_threads=threads, compute_type="float32")
    words = [model.text.tokenizer.id_to_token(i) for i in range(model.vocab_size)]  # type: ignore[union-attr]
    index = {word: i for i, word in enumerate(words)}

    def run(prompts: list[list[int]], new: int, mode: str) -> list[list[int]]:
        how = {
            "greedy": {"sampling_topk": 1},
            "top-p 0.9": {"sampling_topk": 0, "sampling_topp": 0.9},
            "beam 4": {"beam_size": 4},
        }[mode]
        results = generator.generate_batch(
            [[words[i] for i in prompt] for prompt in prompts],
            max_length=new,
            min_length=new,
            include_prompt_in_result=False,
            end_token=[],
            **how,
        )
        return [[index[word] for word in result.sequences[0]] for result in results]

    return run


def measure(
    engines: dict[str, Engine], prompts: list[list[int]], new: int, mode: str, rounds: int
) -> dict[str, list[float]]:
    """Seconds of every engine in every round, warm."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for engine in engines.values():
        engine(prompts, 4, mode)
    for _ in range(rounds):
        for name, engine in engines.items():
            start = time.perf_counter()
            out = engine(prompts, new, mode)
            seconds[name].append(time.perf_counter() - start)
            lengths = {len(row) for row in out}
            if lengths != {new}:
                raise RuntimeError(
                    f"{name} generated {lengths} tokens instead of {new}: times cannot be compared"
                )
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="default: what torch takes"
    )
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=64, help="prompts are cycled to this length")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--modes", nargs="+", default=["greedy", "top-p 0.9", "greedy x8", "beam 4"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console()

    model = us.load(args.model)
    object.__setattr__(model.text, "eos_ids", frozenset())  # every engine generates the same number of tokens
    twin = to_huggingface(model)
    engines = {"unspool": unspool_engine(model), "Hugging Face": huggingface_engine(twin)}
    try:
        engines["CTranslate2"] = ctranslate2_engine(twin, model, args.threads)
    except Exception as error:  # a peer that cannot be set up must not hide the others
        console.print(f"CTranslate2 is left out: {type(error).__name__}: {error}", style="yellow")

    def cut(text: str) -> list[int]:
        ids = model.text.encode(text)  # type: ignore[union-attr]
        return (ids * (args.prompt_tokens // len(ids) + 1))[: args.prompt_tokens]

    prompts = [cut(text) for text in PROMPTS]
    rows, found = [], {}
    for mode in track(args.modes, description="measuring", console=Console(stderr=True)):
        name, _, batch = mode.partition(" x")
        batch_prompts = prompts[: int(batch or 1)]
        seconds = measure(engines, batch_prompts, args.new_tokens, name, args.rounds)
        for engine, times in seconds.items():
            ratios = [hf / own for hf, own in zip(seconds["Hugging Face"], times, strict=True)]
            per_second = args.new_tokens * len(batch_prompts) / statistics.median(times)
            found[f"{mode} · {engine}"] = {
                "seconds": times,
                "tokens_per_second": per_second,
                "ratio": statistics.median(ratios),
                "ratio_min": min(ratios),
                "ratio_max": max(ratios),
            }
            rows.append(
                (
                    mode,
                    engine,
                    f"{per_second:.1f}",
                    f"{statistics.median(ratios):.2f}",
                    f"{min(ratios):.2f}–{max(ratios):.2f}",
                )
            )
    table = Table(title=f"{args.model} fp32, {args.threads} thread(s), {args.new_tokens} new tokens")
    for column in ("mode", "engine", "tokens/s", "× Hugging Face", "spread"):
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"threads": args.threads, "results": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
