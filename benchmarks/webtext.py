"""η-sampling and basis-aware η-sampling at equal rejection of human tokens, on continuations of human text.

    python benchmarks/webtext.py --data webtext.test.jsonl --match webtext.valid.jsonl --json out/webtext.json

Texts are JSONL with a "text" field (OpenAI's gpt-2-output-dataset). The first tokens of each text are the prompt. For each
η, the share of tokens of the --match texts that it rejects is measured, and every other method is set to reject the same
share of the same tokens (`unspool diagnose thresholds`). Results are saved after each method and seed; the same command
continues an interrupted run.

After Finlayson et al. 2024, §6, who use GPT-2 and MAUVE's features; here any model and its own features.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import unspool as us
from unspool.diagnose.matched_thresholds import rejected_shares, thresholds
from unspool.evaluate.diversity import distinct_n, seq_rep_n
from unspool.evaluate.mauve_curve import features, mauve

CLUSTERINGS = 5
"""MAUVE depends on where k-means starts: the mean of so many is taken."""
MATCHED = ("eta", "BA-η", "kappa")


def read(path: Path, model: us.models.TransformerLM, count: int, least: int) -> list[list[int]]:
    """The first texts of so many tokens, cut to that length."""
    rows = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip() and len(tokens := model.tokenizer.encode(json.loads(line)["text"])) >= least:
            rows.append(tokens[:least])
        if len(rows) == count:
            return rows
    raise SystemExit(f"{path} has {len(rows)} texts of {least} tokens, and {count} are asked for")


def match(
    model: us.models.TransformerLM, rows: list[list[int]], etas: list[float], rank: int, progress: Progress
) -> dict:
    """{"eta 0.02": {"eta": decoder, "BA-η": decoder, …, "share": …}}."""
    found = {}
    bar = progress.add_task("matching", total=None)
    shares = {eta: rejected_shares(model, rows, {"eta": eta})["eta"] for eta in etas}
    matches = thresholds(
        model,
        rows,
        [shares[eta] for eta in etas],
        rank=rank,
        basis_tokens=sum(map(len, rows)),
        progress=lambda done, total: progress.update(bar, completed=done, total=total),
    )
    for eta in etas:
        same = {m.sampler: m for m in matches if m.share == shares[eta]}
        found[f"η = {eta:g}"] = {
            "share": shares[eta],
            "tokens": same["eta"].tokens,
            "decoders": {"eta": f"Sample(Eta({eta:g}))"} | {name: same[name].decoder for name in MATCHED[1:]},
            "rejected": {name: same[name].rejected for name in MATCHED},
        }
    return found


def continue_all(
    model: us.models.TransformerLM,
    prompts: list[list[int]],
    search: Any,
    new: int,
    batch: int,
    seed: int,
    tick: Any,
) -> tuple[list[list[int]], dict]:
    texts, counts, logp = [], Counter(), 0.0
    for first in range(0, len(prompts), batch):
        these = prompts[first : first + batch]
        seeds = [1_000_000 * seed + first + i for i in range(len(these))]
        for out in us.generate(model, these, search, max_new_tokens=new, seed=seeds):
            texts.append(list(out.tokens[:-1] if out.finish_reason == "eos" else out.tokens))
            counts.update(out.stats)
            logp += sum(out.logps)
            counts["tokens"] += len(out.tokens)
        tick(len(these))
    return texts, {**counts, "mean_logp": logp / counts["tokens"]}


def measure(
    model: us.models.TransformerLM,
    human_ND: torch.Tensor,
    prompts: list[list[int]],
    texts: list[list[int]],
    batch: int,
) -> dict:
    generated_ND = features(model, [p + t for p, t in zip(prompts, texts, strict=True)], batch=batch)
    found = mauve(human_ND, generated_ND, clusterings=CLUSTERINGS, min_texts=1)
    return {
        "mauve": found.value,
        "mauve_smoothed": found.smoothed,
        "mauve_by_clustering": list(found.by_clustering),
        "seq_rep_4": seq_rep_n(texts, 4),
        "distinct_1": distinct_n(texts, 1),
        "distinct_2": distinct_n(texts, 2),
        "mean_length": sum(map(len, texts)) / len(texts),
    }


def show(found: dict, console: Console) -> None:
    table = Table(title=found["title"])
    for column in ("setting", "method", "MAUVE", "MAUVE*", "seq-rep-4", "distinct-2", "log p", "seeds", "s"):
        table.add_column(column, no_wrap=True, justify="left" if column in ("setting", "method") else "right")
    rows: dict[tuple[str, str], list[dict]] = {}
    for run in found["runs"].values():
        rows.setdefault((run["setting"], run["method"]), []).append(run)
    for (setting, method), runs in rows.items():
        values = [100 * run["mauve"] for run in runs]
        spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""

        def mean(name: str, runs: list[dict] = runs) -> float:
            return statistics.mean(run.get(name, float("nan")) for run in runs)

        table.add_row(
            setting,
            method,
            f"{statistics.mean(values):.1f}{spread}",
            f"{100 * mean('mauve_smoothed'):.1f}",
            f"{mean('seq_rep_4'):.4f}",
            f"{mean('distinct_2'):.3f}",
            f"{mean('mean_logp'):.2f}",
            str(len(runs)),
            f"{mean('seconds'):.0f}",
        )
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="JSONL of human texts to continue")
    parser.add_argument("--match", type=Path, required=True, help="JSONL of human texts to match settings on")
    parser.add_argument("--json", type=Path, required=True, help="results, saved after each method and seed")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--etas", type=float, nargs="+", default=[2e-2, 2e-3])
    parser.add_argument("--methods", nargs="+", default=list(MATCHED), choices=MATCHED)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--match-texts", type=int, default=25)
    parser.add_argument("--prompt-tokens", type=int, default=20)
    parser.add_argument("--new-tokens", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()

    torch.set_num_threads(1)
    model, console = us.load(args.model), Console(stderr=True, width=130)
    length = args.prompt_tokens + args.new_tokens
    # Two sets of people: the first is continued and compared with, the second shows what people themselves reach.
    people = read(args.data, model, 2 * args.texts, length)
    prompts = [row[: args.prompt_tokens] for row in people[: args.texts]]
    title = (
        f"{args.model}, {args.texts} texts, {args.prompt_tokens} + {args.new_tokens} tokens, rank {args.rank}"
    )
    found = json.loads(args.json.read_text()) if args.json.exists() else {"title": title, "runs": {}}
    if found["title"] != title:
        raise SystemExit(f"{args.json} holds another experiment ({found['title']}): name another file")

    def save() -> None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        new = args.json.with_suffix(".new")
        new.write_text(json.dumps(found, ensure_ascii=False))
        new.replace(args.json)

    with Progress(console=console) as progress:
        if "settings" not in found:
            rows = read(args.match, model, args.match_texts, length)
            found["settings"] = match(model, rows, args.etas, args.rank, progress)
            save()
        plan = [
            (seed, setting, method, each["decoders"][method])
            for seed in range(1, args.seeds + 1)
            for setting, each in found["settings"].items()
            for method in args.methods
        ]
        plan += [(seed, "–", "sample", "Sample()") for seed in range(1, args.seeds + 1)]
        bar = progress.add_task("texts", total=len(plan) * args.texts)
        human_ND = features(model, people[: args.texts], batch=args.batch)
        if "people" not in found["runs"]:
            rest = people[args.texts :]
            parts = [row[: args.prompt_tokens] for row in rest], [row[args.prompt_tokens :] for row in rest]
            measured = measure(model, human_ND, *parts, args.batch)
            found["runs"]["people"] = {"setting": "–", "method": "people", "seed": 0, **measured}
            save()
        for seed, setting, method, decoder in plan:
            key = f"{setting} | {method} | {seed}"
            if key in found["runs"]:
                progress.advance(bar, args.texts)
                continue
            began = time.process_time()
            texts, counts = continue_all(
                *(model, prompts, us.parse(decoder), args.new_tokens, args.batch, seed),
                lambda n: progress.advance(bar, n),
            )
            seconds = time.process_time() - began
            about = {
                "setting": setting,
                "method": method,
                "decoder": decoder,
                "seed": seed,
                "seconds": seconds,
            }
            found["runs"][key] = {
                **about,
                **counts,
                **measure(model, human_ND, prompts, texts, args.batch),
                "texts": texts,
            }
            save()
    for setting, each in found["settings"].items():
        console.print(setting, f"rejects {each['share']:.2%} of {each['tokens']} tokens:", each["decoders"])
    show(found, Console(width=130))
    return 0


if __name__ == "__main__":
    sys.exit(main())
