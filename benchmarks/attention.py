"""Attention losses, key elimination and dependency heads on a small language model trained on a treebank.

    python benchmarks/attention.py en_ewt-ud-train.conllu en_ewt-ud-dev.conllu --beside smollm2 [--out FOLDER]
    … --seeds 1 2 3    mean ± standard deviation of trained quantities; keys, other models and speed use the first seed

1. The losses `attention_focus` and `attention_near` added to likelihood: mean entropy and mean squared distance of
   attention (all layers except the last), perplexity, and the cost of an update with weight 0 and without the loss.
2. Key elimination: the largest change of log p after conversion to W̃ and back, perplexity by rank, and the parameters
   and FLOPs of a head by width.
3. Dependency heads: for frequent labels, the best head of the plain model and of other models (`--beside`), the best
   fixed offset, and heads trained on one label each. Heads and offsets are selected on one half of the sentences and
   evaluated on the other.
"""

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

import unspool as us
from peers.stopwatch import Stopwatch
from unspool.data.conllu import read_treebank
from unspool.diagnose.dependency_agreement import agreements
from unspool.evaluate import perplexity
from unspool.models.key_elimination import costs, with_keys, without_keys
from unspool.nn.attention import label_arcs
from unspool.objectives.attention_losses import distance, entropy, pad_rows

LABELS = ("nsubj", "obj")
LAYER = 2
"""Whose heads are taught these."""
LOSSES = {
    "plain": [],
    "focus 0.03": [{"kind": "attention_focus", "weight": 0.03}],
    "focus 0.3": [{"kind": "attention_focus", "weight": 0.3}],
    "near 0.005": [{"kind": "attention_near", "weight": 0.005}],
    "near 0.05": [{"kind": "attention_near", "weight": 0.05}],
}


def recipe(lines, updates, auxiliary=(), seed=1):
    return {
        "seed": seed,
        "data": {"kind": "lines", "train": str(lines), "valid_lines": 200},
        "tokenizer": {"kind": "bpe", "vocab_size": 2000},
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
def attentions(model, texts):
    """Mean entropy over all layers, and mean squared distance over all but the last."""
    rows = [tuple(model.tokenizer.encode(it)) for it in texts]
    batch = pad_rows(rows)
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
    for name, models in runs.items():
        found = [(perplexity(model, texts).value, *attentions(model, texts)) for model in models]
        said = [_spread(it, digits) for it, digits in zip(zip(*found, strict=True), (1, 3, 1), strict=True)]
        print(f"| {name} | {' | '.join(said)} |", flush=True)


def _spread(values, digits):
    """The mean, and the standard deviation where there are several; then each of them."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    each = ", ".join(f"{it:.{digits}f}" for it in values)
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f} ({each})"


def study_speed(lines, rounds=6, updates=30):
    """CPU time of an update with weight 0 against without; rounds are interleaved."""
    zero = [{"kind": "attention_focus", "weight": 0.0}, {"kind": "attention_near", "weight": 0.0}]
    seconds = {"without": [], "weight 0": []}
    for _ in range(rounds):
        for name, auxiliary in (("without", ()), ("weight 0", zero)):
            watch = Stopwatch()
            us.train(recipe(lines, updates, auxiliary), reporter=watch)
            seconds[name].append(sum(watch.seconds[updates // 3 : -1]))  # the last one writes a checkpoint
    ratios = [b / a for a, b in zip(*seconds.values(), strict=True)]
    each = {name: min(it) / (updates - updates // 3 - 1) for name, it in seconds.items()}
    print(
        f"\nCPU seconds of an update: {each}; weight 0 / without, round by round: median "
        f"{statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}"
    )


def study_keys(model, texts):
    rows = torch.tensor([model.tokenizer.encode(texts[0])])
    logp, keyless = model(rows), without_keys(model)
    back = with_keys(keyless)
    width = model.config.width // model.config.heads
    print(
        f"\nlargest change of log p: {(keyless(rows) - logp).abs().max():.1e} to W̃, "
        f"{(back(rows) - logp).abs().max():.1e} back at rank {width}"
    )
    print("\n| rank | perplexity |\n|---|---|")
    for rank in (width, width // 2, width // 4, width // 8, 2, 1):
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


def judged(model, choose, judge, min_arcs):
    """Label → (agreement, its head): the head that is best on `choose`, judged on `judge`; and every head there."""
    found = {}
    every = {it.label: it.every for it in agreements(model, judge, min_arcs=0)}
    for it in agreements(model, choose, min_arcs=min_arcs):
        if it.label in every:
            found[it.label] = (every[it.label][it.layer][it.head], f"{it.layer}.{it.head}", every[it.label])
    return found


def offsets(sentences, label):
    """How many arcs of a label go back by how many words."""
    words = ([(it.head, it.label) for it in sentence.words] for sentence in sentences)
    return Counter(later - earlier for row in words for later, earlier in label_arcs(row, label))


def study_heads(models, choose, judge, taught, min_arcs=50):
    found = {name: judged(model, choose, judge, min_arcs) for name, model in models.items()}
    learnt = [judged(it, choose, judge, min_arcs) for it in taught]
    columns = ["label", "arcs", "best offset", *(f"{it}, best head" for it in models)]
    print(f"\n| {' | '.join(columns)} | taught head |\n" + "|---" * (len(columns) + 1) + "|")
    for label in found["plain"]:
        arcs = offsets(judge, label)
        offset = offsets(choose, label).most_common(1)[0][0]
        said = [f"{share:.1%} ({head})" for share, head, _ in (it[label] for it in found.values())]
        if label not in LABELS:
            said.append("")
        else:
            at = LABELS.index(label)
            shares = [100 * it[label][2][LAYER][at] for it in learnt]
            said.append(f"{_spread(shares, 1)} % ({LAYER}.{at})")
        share = arcs[offset] / arcs.total()
        print(f"| {label} | {arcs.total()} | {share:.1%} (−{offset}) | {' | '.join(said)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument(
        "--sentences", type=int, default=200, help="to choose heads on, and as many to judge them on"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--beside", nargs="*", default=[], help="models whose heads are looked at, too")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.modules["matplotlib"] = None  # pictures of the curves take longer than these runs
    folder = args.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    lines = folder / "lines.txt"
    lines.write_text("\n".join(it.text for it in read_treebank(args.train)) + "\n", encoding="utf-8")
    dev = read_treebank(args.dev)[: 2 * args.sentences]
    texts = [it.text for it in dev if len(it.words) > 3][:200]
    heads = {"kind": "dependency_heads", "treebank": str(args.train), "labels": list(LABELS), "layer": LAYER}
    runs = {}
    for name, auxiliary in {**LOSSES, "taught": [{**heads, "rows": 16, "weight": 0.3}]}.items():
        for seed in args.seeds:
            run = folder / f"{name.replace(' ', '-')}-{seed}"
            done = (run / "config.json").exists()
            begin = time.process_time()
            model = us.load(run) if done else us.train(recipe(lines, args.updates, auxiliary, seed), run)
            runs.setdefault(name, []).append(model.eval())
            print(f"{name}, seed {seed}: {time.process_time() - begin:.0f} CPU seconds", flush=True)
    study_losses(runs, texts)
    plain = runs["plain"][0]
    study_keys(plain, texts)
    beside = {name: us.load(name) for name in args.beside}
    choose, judge = dev[: args.sentences], dev[args.sentences :]
    study_heads({"plain": plain, **beside}, choose, judge, runs["taught"])
    study_speed(lines)


if __name__ == "__main__":
    main()
