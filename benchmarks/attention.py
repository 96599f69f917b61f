"""Attention studies on real text: a small language model of a treebank's sentences, four times.

    python benchmarks/attention.py en_ewt-ud-train.conllu en_ewt-ud-dev.conllu [--updates 400] [--out FOLDER]

1. With the losses focus and near beside likelihood: mean entropy and mean squared distance of attention (all
   layers but the last), perplexity; and what a training update costs with weight 0 against without the feature.
2. Key elimination: the largest change of log p by conversion to W̃ and back, perplexity by rank, the table of
   parameters and FLOPs of a head by width.
3. Dependency heads: for the frequent labels, the best head of the plain model, the best fixed offset, and
   heads that were taught a label each.
"""

import argparse
import math
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

import unspool as us
from unspool.data.conllu import read_treebank
from unspool.diagnose.dependency_agreement import agreements
from unspool.evaluate import perplexity
from unspool.models.key_elimination import costs, with_keys, without_keys
from unspool.objectives.attention_focus import entropy
from unspool.objectives.attention_near import distance
from unspool.objectives.dependency_heads import as_batch

LABELS = ("nsubj", "obj")


def recipe(lines, updates, auxiliary=()):
    return {
        "seed": 1,
        "data": {"kind": "lines", "train": str(lines), "valid_lines": 200},
        "text": {"kind": "bpe", "vocab_size": 2000},
        "batches": {"kind": "bucketed", "tokens": 1024},
        "model": {
            **{"kind": "transformer_lm", "width": 96, "heads": 4, "layers": 4, "inner_width": 192},
            **{"positions": "sinusoidal"},
        },
        "auxiliary": list(auxiliary),
        "schedule": {"kind": "cosine", "warmup": 40},
        "train": {"updates": updates, "lr": 3e-3, "threads": 1, "final": "last"},
    }


@torch.no_grad()
def looks(model, texts):
    """Mean entropy over all layers, and mean squared distance over all but the last."""
    rows = [tuple(model.text.encode(it)) for it in texts]
    batch = as_batch(rows)
    _, (stack,) = model.read_attention(batch)
    real = (torch.arange(batch.inputs_NT.shape[1]) < batch.lengths_N[:, None])[:, None].expand_as(
        entropy(stack.layers[0])
    )
    spread = torch.stack([entropy(it)[real].mean() for it in stack.layers]).mean()
    far = torch.stack([distance(it)[real].mean() for it in stack.layers[:-1]]).mean()
    return float(spread), float(far)


def study_losses(runs, texts):
    print(
        "\n| beside likelihood | perplexity | mean entropy, nats | mean squared distance |\n|---|---|---|---|"
    )
    for name, model in runs.items():
        spread, far = looks(model, texts)
        print(f"| {name} | {perplexity(model, texts).value:.2f} | {spread:.3f} | {far:.1f} |")


def study_speed(lines, folder):
    """CPU time of updates with weight 0 against without; rounds are interleaved, and the fastest counts."""
    zero = [{"kind": "attention_focus", "weight": 0.0}, {"kind": "attention_near", "weight": 0.0}]
    seconds = {"without": [], "weight 0": []}
    for turn in range(6):
        for name, auxiliary in (("without", ()), ("weight 0", zero)):
            begin = time.process_time()
            us.train(recipe(lines, 20, auxiliary), folder / f"speed-{turn}-{name}")
            seconds[name].append(time.process_time() - begin)
    best = {name: min(it) for name, it in seconds.items()}
    print(f"\n20 updates, CPU seconds: {best}; ratio {best['weight 0'] / best['without']:.3f}")


def study_keys(model, texts):
    rows = torch.tensor([model.text.encode(texts[0])])
    logp, keyless = model(rows), without_keys(model)
    back = with_keys(keyless)
    width = model.config.width // model.config.heads
    print(
        f"\nlargest change of log p: {(keyless(rows) - logp).abs().max():.1e} to W̃, "
        f"{(back(rows) - logp).abs().max():.1e} back at rank {width}"
    )
    print("\n| rank | perplexity |\n|---|---|")
    for rank in (width, width // 2, width // 4, width // 8, 1):
        print(f"| {rank} | {perplexity(with_keys(keyless, rank), texts).value:.2f} |")
    print(
        "\n| J | I | parameters, q and k | W̃ | FLOPs a token, q and k | W̃ | scores of 512 others, q and k | W̃ |\n"
        + "|---" * 8
        + "|"
    )
    for J, I in ((96, 24), (96, 48), (512, 64), (512, 256), (768, 64)):  # noqa: E741
        both = costs(J, I, 512)
        a, b = both["query_key"], both["keyless"]
        print(
            f"| {J} | {I} | {a.parameters:,} | {b.parameters:,} | {a.projections:,} | {b.projections:,} | {a.scores:,} | {b.scores:,} |"
        )


def study_heads(runs, dev):
    found = {name: {it.label: it for it in agreements(model, dev, least=100)} for name, model in runs.items()}
    print(f"\n| label | arcs | best offset | {' | '.join(runs)} |\n|---|---|---" + "|---" * len(runs) + "|")
    for label, it in found["plain"].items():
        said = [f"{f[label].agreement:.1%} ({f[label].layer}.{f[label].head})" for f in found.values()]
        print(f"| {label} | {it.arcs} | {it.offset_agreement:.1%} (−{it.offset}) | {' | '.join(said)} |")
    for at, label in enumerate(LABELS):
        if "taught" in found:
            print(f"taught head 1.{at}, {label}: {found['taught'][label].every[1][at]:.1%}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--sentences", type=int, default=300, help="of the dev treebank")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.modules["matplotlib"] = None  # pictures of the curves take longer than these runs
    folder = args.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    lines = folder / "lines.txt"
    lines.write_text("\n".join(it.text for it in read_treebank(args.train)) + "\n", encoding="utf-8")
    dev = read_treebank(args.dev)[: args.sentences]
    texts = [it.text for it in dev if len(it.words) > 3][:100]
    heads = {
        "kind": "dependency_heads",
        "treebank": str(args.train),
        "labels": list(LABELS),
        "layer": 1,
        "weight": 0.3,
    }
    tables = {
        "plain": [],
        "focus 0.3": [{"kind": "attention_focus", "weight": 0.3}],
        "near 0.05": [{"kind": "attention_near", "weight": 0.05}],
        "taught": [heads],
    }
    runs = {}
    for name, auxiliary in tables.items():
        run = folder / name.replace(" ", "-")
        done = (run / "config.json").exists()
        begin = time.process_time()
        runs[name] = us.load(run) if done else us.train(recipe(lines, args.updates, auxiliary), run)
        runs[name].eval()
        print(f"{name}: {time.process_time() - begin:.0f} CPU seconds", flush=True)
    study_losses({name: runs[name] for name in ("plain", "focus 0.3", "near 0.05")}, texts)
    study_keys(runs["plain"], texts)
    study_heads({name: runs[name] for name in ("plain", "taught")}, dev)
    study_speed(lines, folder)
    assert math.isfinite(perplexity(runs["plain"], texts[:2]).value)


if __name__ == "__main__":
    main()
