"""Quality of every lossy choice: perplexity, and divergence from the same model in float32.

    python benchmarks/quality.py --text wiki.test.tokens                          # half an hour on one core
    python benchmarks/quality.py --text wiki.test.tokens --tokens 4000 --choices "int8" "q4_0"

A choice is a format of weights and of the KV cache on the compiled engine: float32, int8, or a GGUF file as it is stored.
All models read the same tokens in consecutive windows of 1,024. p is the model in float32 on torch.

    ratio of perplexities    of the choice to p
    mean KL                  KL(p ‖ choice) over all positions, in nats
    same token               how often both have the same most probable token
    KL of rounding           KL(the same weights in float32 on torch ‖ choice): 16-bit activations and the KV cache

GGUF files are those that the other benchmarks write in the cache folder, or --files. WikiText-2's test set:
https://huggingface.co/datasets/Salesforce/wikitext
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import unspool as us
from peers.weight_files import folder_of, source_of

WINDOW = 1024
POSITIONS = 256
"""Whose distributions are compared at once: those of a large vocabulary take many megabytes."""


@dataclass(frozen=True)
class Choice:
    """A model on the compiled engine."""

    name: str
    file: str
    weights: str
    kv_cache: str


@dataclass
class Sums:
    """Sums over all positions so far."""

    tokens: int = 0
    same: int = 0
    nats: float = 0.0
    divergence: float = 0.0
    rounding: float = 0.0


@dataclass
class Comparison:
    """The models of all choices, and those with the same weights in float32."""

    base: str
    choices: list[Choice]
    models: dict[Choice, Any] = field(init=False)
    exact: dict[tuple[str, str], Any] = field(init=False)

    def __post_init__(self) -> None:
        self.models = {
            it: us.load(it.file, engine="compiled", weights=it.weights, kv_cache=it.kv_cache)
            for it in self.choices
        }
        kinds = {(self.base, "float32"), *(self.weights_of(it) for it in self.choices)}
        self.exact = {(file, kind): us.load(file, engine="torch", weights=kind) for file, kind in kinds}

    @staticmethod
    def weights_of(choice: Choice) -> tuple[str, str]:
        """What to load on torch: a file as it is stored has the same numbers in float32."""
        return choice.file, "int8" if choice.weights == "int8" else "float32"

    @torch.inference_mode()
    def add_window(self, window: list[int], sums: dict[Choice, Sums], base: Sums) -> None:
        """Every token of a window but the first."""
        read, token_M = torch.tensor([window[:-1]]), torch.tensor(window[1:])
        hidden = {key: model.hidden(read)[0] for key, model in self.exact.items()}
        others = {it: model.read_all(read.tolist()) for it, model in self.models.items()}
        for cut in torch.arange(len(token_M)).split(POSITIONS):
            exact = {key: self.exact[key].head(hidden_MD[cut]) for key, hidden_MD in hidden.items()}
            logp_MV, wanted_M1 = exact[self.base, "float32"], token_M[cut][:, None]
            base.tokens += len(cut)
            base.nats -= total(logp_MV.gather(1, wanted_M1))
            for choice, (hidden_MD, _, state) in others.items():
                found_MV, own = state.predict_step(hidden_MD[cut]).logp_NV, sums[choice]
                own.tokens += len(cut)
                own.same += int((logp_MV.argmax(1) == found_MV.argmax(1)).sum())
                own.nats -= total(found_MV.gather(1, wanted_M1))
                own.divergence += divergence(logp_MV, found_MV)
                own.rounding += divergence(exact[self.weights_of(choice)], found_MV)


def total(values: torch.Tensor) -> float:
    return float(values.double().sum())


def divergence(logp_MV: torch.Tensor, other_MV: torch.Tensor) -> float:
    """Sum of KL(p ‖ q) over the rows."""
    return total((logp_MV.exp() * (logp_MV - other_MV)).sum(1))


def choices_of(model: str, files: list[Path]) -> list[Choice]:
    found = [
        Choice("float32, float16 KV", model, "float32", "float16"),
        Choice("int8, float32 KV", model, "int8", "float32"),
        Choice("int8", model, "int8", "float16"),
    ]
    for file in files:
        found.append(Choice(f"{file.stem}, float32 KV", str(file), "stored", "float32"))
        found.append(Choice(file.stem, str(file), "stored", "float16"))
    return found


def table_of(sums: dict[Choice, Sums], base: Sums) -> Table:
    perplexity = math.exp(base.nats / base.tokens)
    table = Table(title=f"{base.tokens} tokens, perplexity in float32 {perplexity:.4f}")
    for column in ("weights as chosen", "ratio of perplexities", "mean KL", "same token", "KL of rounding"):
        table.add_column(column, justify="left" if "chosen" in column else "right")
    for choice, own in sums.items():
        ratio = math.exp((own.nats - base.nats) / own.tokens)
        shares = f"{own.divergence / own.tokens:.2g}", f"{own.same / own.tokens:.2%}"
        table.add_row(choice.name, f"{ratio:.5f}", *shares, f"{own.rounding / own.tokens:.2g}")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="a file of text in UTF-8")
    parser.add_argument("--model", default="smollm2", help="a GGUF file or a model package")
    parser.add_argument("--files", type=Path, nargs="+", help="GGUF files of the same model, run as stored")
    parser.add_argument("--choices", nargs="+", default=[""], help="how their names begin; default: all")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.text.is_file():
        parser.error(f"there is no file {args.text}: give any text, such as WikiText-2's wiki.test.tokens")
    torch.set_num_threads(args.threads)
    source = source_of(args.model)
    written = sorted(it for it in folder_of(source).glob("*.gguf") if it.stem != "f32")
    choices = choices_of(str(source), args.files or [source, *written])
    choices = [it for it in choices if it.name.startswith(tuple(args.choices))]
    comparison = Comparison(str(source), choices)
    # A token takes some four bytes: ten times that is enough, and not all of a long file.
    tokenizer = comparison.exact[str(source), "float32"].tokenizer
    text = args.text.read_text(encoding="utf-8")[: 10 * args.tokens]
    ids = tokenizer.encode(text)[: args.tokens + 1]
    sums, base = {it: Sums() for it in choices}, Sums()
    for first in range(0, len(ids) - 1, WINDOW):
        comparison.add_window(ids[first : first + WINDOW + 1], sums, base)
        print(f"\r{base.tokens} tokens", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    Console(width=120).print(table_of(sums, base))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        found = {choice.name: asdict(own) for choice, own in sums.items()}
        args.json.write_text(json.dumps({"float32": asdict(base), **found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
