"""Quality of int8 weights and of a float16 KV cache: perplexity, and divergence from the same model in float32.

    python benchmarks/int8_quality.py --text wiki.test.tokens
    python benchmarks/int8_quality.py --text wiki.test.tokens --engine compiled --kv-cache float16
    python benchmarks/int8_quality.py --text wiki.test.tokens --engine compiled --weights float32 --kv-cache float16
    python benchmarks/int8_quality.py --text wiki.test.tokens --engine compiled --against int8   # rounded activations alone

The first model runs on torch. Both models read the same tokens in consecutive windows of 1,024. The table shows the perplexities and their ratio, the
mean of KL(p_float32 ‖ p_int8) over all positions, and how often both have the same most probable token.

The published numbers use the first 20,000 tokens of WikiText-2's test set
(wiki.test.tokens: https://huggingface.co/datasets/Salesforce/wikitext).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

import unspool as us

WINDOW = 1024
PLACES = 256
"""Whose distributions are compared at once: those of a large vocabulary are many megabytes."""
MOST_RATIO, MOST_KL = 1.005, 0.003


@dataclass
class Sums:
    """Over all places so far."""

    tokens: int = 0
    same: int = 0
    nats: float = 0.0
    other_nats: float = 0.0
    divergence: float = 0.0

    def add(self, logp_MV: torch.Tensor, other_MV: torch.Tensor, token_M: torch.Tensor) -> None:
        self.tokens += len(token_M)
        self.same += int((logp_MV.argmax(1) == other_MV.argmax(1)).sum())
        self.nats -= float(logp_MV.gather(1, token_M[:, None]).double().sum())
        self.other_nats -= float(other_MV.gather(1, token_M[:, None]).double().sum())
        self.divergence += float((logp_MV.exp() * (logp_MV - other_MV)).sum(1).double().sum())


@torch.inference_mode()
def compare(whole: us.models.TransformerLM, small: us.models.TransformerLM, ids: list[int]) -> Sums:
    """Both models at every token of the text but the first of each window."""
    found, is_compiled = Sums(), small.engine == "compiled"
    for first in range(0, len(ids) - 1, WINDOW):
        window = torch.tensor([ids[first : first + WINDOW + 1]])
        read, said = window[:, :-1], window[0, 1:]
        hidden, (other, _, state) = whole.hidden(read)[0], small.read_all(read.tolist())
        for cut in torch.arange(len(said)).split(PLACES):
            logp = state.predict_step(other[cut]).logp_NV if is_compiled else small.head(other[cut])
            found.add(whole.head(hidden[cut]), logp, said[cut])
        print(f"\r{found.tokens} tokens", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="a file of text in UTF-8")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="int8", help="of the second model")
    parser.add_argument("--against", default="float32", help="weights of the first model, on torch")
    parser.add_argument("--engine", default="torch", help="of the second model")
    parser.add_argument("--kv-cache", help="of the second model, if it runs compiled")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.text.is_file():
        parser.error(f"there is no file {args.text}: give any text, such as WikiText-2's wiki.test.tokens")
    torch.set_num_threads(args.threads)
    whole = us.load(args.model, engine="torch", weights=args.against)
    small = us.load(args.model, engine=args.engine, weights=args.weights, kv_cache=args.kv_cache)
    # A token takes some four bytes: ten times that is enough, and not all of a long file.
    ids = whole.tokenizer.encode(args.text.read_text(encoding="utf-8")[: 10 * args.tokens])[: args.tokens + 1]
    start = time.perf_counter()
    sums = compare(whole, small, ids)
    found = {
        "model": args.model,
        "weights": args.weights,
        "tokens": sums.tokens,
        f"perplexity in {args.against}": math.exp(sums.nats / sums.tokens),
        "perplexity of the second model": math.exp(sums.other_nats / sums.tokens),
        "ratio": math.exp((sums.other_nats - sums.nats) / sums.tokens),
        "mean KL": sums.divergence / sums.tokens,
        "same most probable token": sums.same / sums.tokens,
        "seconds": time.perf_counter() - start,
    }
    for key, value in found.items():
        print(f"{key:26} {value:.6g}" if isinstance(value, float) else f"{key:26} {value}")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=1))
    good = found["ratio"] <= MOST_RATIO and found["mean KL"] <= MOST_KL
    print(
        "as wanted" if good else f"NOT as wanted: a ratio of {MOST_RATIO} and a mean KL of {MOST_KL} at most"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
