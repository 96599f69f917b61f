"""What eight bits a weight cost a model: perplexity and divergence from the same model in float32.

    python benchmarks/int8_quality.py --text wiki.test.tokens

Both models read the same tokens of a text, given the true ones before them, in windows of 512 that overlap by
half. Printed are the perplexities, their ratio, the mean of KL(p_float32 ‖ p_int8) over all places, and how
often the most probable token is the same one. Wanted: a ratio within 0.5 % and a mean KL of at most 0.003.

The text is any of yours; what is written down was measured on the first 20,000 tokens of WikiText-2's test set
(wiki.test.tokens: https://huggingface.co/datasets/Salesforce/wikitext).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch

import unspool as us
from unspool.evaluate.teacher_forcing import forced, read

WINDOW = 512
MOST_RATIO, MOST_KL = 1.005, 0.003


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="a file of text in UTF-8")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--weights", default="int8", help='what is set beside float32: "int8"')
    parser.add_argument("--engine", choices=["torch", "compiled"], help="default: the best that is there")
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not args.text.is_file():
        parser.error(f"there is no file {args.text}: give any text, such as WikiText-2's wiki.test.tokens")
    torch.set_num_threads(args.threads)
    whole = us.load(args.model, engine=args.engine)
    small = us.load(args.model, engine=args.engine, weights=args.weights)
    # A token takes some four bytes: ten times that is enough, and not all of a long file.
    ids = whole.text.encode(args.text.read_text(encoding="utf-8")[: 10 * args.tokens])[: args.tokens + 1]
    parts = forced(whole, [ids], context=min(WINDOW, whole.context or WINDOW))
    start, tokens, same = time.perf_counter(), 0, 0
    nats, other_nats, divergence = 0.0, 0.0, 0.0
    for one, other in zip(read(whole, parts), read(small, parts), strict=True):
        logp_MV, other_MV = one.logp_MV, other.logp_MV
        nats -= float(logp_MV.gather(1, one.token_M[:, None]).double().sum())
        other_nats -= float(other_MV.gather(1, one.token_M[:, None]).double().sum())
        divergence += float((logp_MV.exp() * (logp_MV - other_MV)).double().sum())
        same += int((logp_MV.argmax(1) == other_MV.argmax(1)).sum())
        tokens += len(one.token_M)
    found = {
        "model": args.model,
        "weights": args.weights,
        "engine": args.engine or "the best",
        "tokens": tokens,
        "perplexity in float32": math.exp(nats / tokens),
        f"perplexity in {args.weights}": math.exp(other_nats / tokens),
        "ratio": math.exp((other_nats - nats) / tokens),
        "mean KL": divergence / tokens,
        "same most probable token": same / tokens,
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
