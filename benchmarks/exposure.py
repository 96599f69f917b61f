"""What each remedy for exposure bias is worth at equal compute: gap and quality, before and after.

    python benchmarks/exposure.py language [--seeds 3] [--updates 400] [--out FOLDER]
    python benchmarks/exposure.py dates    [--seeds 3] [--updates 400] [--out FOLDER]

A model learns by maximum likelihood. From there each objective goes on in a copy of the run, for as much CPU time
as maximum likelihood needs for `--more` updates: what a remedy's update costs is timed first, and it gets so
many fewer (`seconds` is what it took in the end). `language` is one with long-distance agreement, whose truth is known: the gap is the exact
divergence after the model's own words less that after right ones, quality the share of its sampled sentences
that are possible. `dates` writes dates as ISO dates: the gap is that of the right answer's loss after own
tokens, quality the share of greedy answers that are right.
"""

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import warnings
from pathlib import Path

import torch

import unspool as us
from peers.stopwatch import Stopwatch
from unspool.data.languages.made_data import Language, Task
from unspool.diagnose.exposure_bias import exposure, true_exposure

LANGUAGE = {"kind": "agreement", "genders": 2, "embed": 0.2}
LM = {"kind": "transformer_lm", "width": 48, "heads": 4, "layers": 2, "inner_width": 96}
SEQ2SEQ = {
    **{"kind": "transformer_seq2seq", "width": 48, "heads": 4, "inner_width": 96},
    **{"encoder_layers": 2, "decoder_layers": 2},
}
REWARD = {"language": "exposure:possible", "dates": "chrf"}


def possible(said, wanted):  # noqa: ARG001 — the reward of the recipe for the language
    """1 for a sentence that the language can speak."""
    words = known().codec().encode(said)
    return float(math.isfinite(known().log_prob(words)))


def known():
    if not _KNOWN:
        _KNOWN.append(Language(language=LANGUAGE).known)
    return _KNOWN[0]


_KNOWN = []


def recipe(task, seed, updates):
    data = {
        "language": {"kind": "language", "language": LANGUAGE, "train": 40_000, "valid": 200, "seed": seed},
        "dates": {"kind": "task", "task": {"kind": "dates"}, "train": 1500, "valid": 200, "seed": seed},
    }[task]
    return {
        "seed": seed,
        "data": data,
        **({"text": {"kind": "characters"}} if task == "dates" else {}),
        "batches": {"kind": "bucketed", "tokens": 512},
        "model": LM if task == "language" else SEQ2SEQ,
        "schedule": {"kind": "constant", "warmup": 50},
        "train": {
            **{"updates": updates, "lr": 2e-3, "final": "last", "threads": 1},
            **{"validate_every": 10**6, "checkpoint_every": 10**6},
        },
    }


def remedies(task, teacher):
    """Name → the tables that replace [objective] and [[auxiliary]]."""
    reward, prompt = REWARD[task], 1 if task == "language" else 8
    ask = {"prompt": prompt, "stretch": 1.5}
    decay = {"kind": "linear", "begin": 0.75, "slope": 0.0}  # three of four tokens are the right ones
    found = {
        "maximum likelihood": {},
        "scheduled sampling": {"objective": {"kind": "scheduled_sampling", "decay": decay}},
        "unlikelihood": {"auxiliary": [{"kind": "unlikelihood", "weight": 0.2}]},
        "sequence unlikelihood": {"auxiliary": [{"kind": "sequence_unlikelihood", "n": 4, **ask}]},
        "reinforce": {"auxiliary": [{"kind": "reinforce", "reward": reward, "weight": 0.3, **ask}]},
        "minimum risk": {
            "auxiliary": [
                {"kind": "minimum_risk", "reward": reward, "samples": 4, "alpha": 0.05, "weight": 2.0, **ask}
            ]
        },
    }
    if task != "language":  # whose most probable sentence is one and the same every time
        found["distillation"] = {"objective": {"kind": "distillation", "teacher": str(teacher), **ask}}
    return found


def measure(task, model, seed):
    if task == "language":
        found = true_exposure(model, known(), (1, 2, 4, 8, 12), texts=1000, seed=7)
        said = us.generate(
            model, [[known().bos]] * 1000, us.Sample(), max_new_tokens=60, seed=list(range(1000))
        )
        right = (
            sum(math.isfinite(known().log_prob([t for t in it.tokens if t != known().eos])) for it in said)
            / 1000
        )
    else:
        rows = list(Task(task={"kind": "dates"}, train=10, valid=500, seed=seed).valid_rows(None))
        sources, targets = zip(*rows, strict=True)
        pairs = [
            (
                model.text.encode(it),
                [*[t for t in model.text.encode(to) if t != model.text.bos_id], min(model.text.eos_ids)],
            )
            for it, to in rows
        ]
        found = exposure(model, pairs, (1, 2, 4, 6, 8), span=4, seed=7)
        said = us.generate(model, list(sources), us.Greedy(), max_new_tokens=20)
        right = sum(it.text == to for it, to in zip(said, targets, strict=True)) / len(targets)
    texts = sum(it.texts for it in found.points)
    return {
        "after right ones": sum(it.right * it.texts for it in found.points) / texts,
        "gap": found.gap,
        "quality": right,
    }


def cost(settings, folder, updates=24):
    """CPU seconds of an update: the mean of some, without the first ones, for which things are loaded."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, watch = Path(scratch) / "run", Stopwatch()
        shutil.copytree(folder, copy)
        more = settings["train"]["updates"] + updates
        longer = {**settings, "train": {**settings["train"], "updates": more}}
        us.train(longer, copy, resume=True, reporter=watch)
    return statistics.mean(watch.seconds[updates // 4 :])


def study(task, seed, updates, more, work):
    """Name → what was measured, of one seed: before, and after each remedy for the CPU time of `more` updates."""
    base, teacher = work / f"{task}-{seed}", work / f"{task}-{seed}-teacher"
    settings = recipe(task, seed, updates)
    if not (base / "config.json").exists():
        us.train(settings, base)
    found = {"before": measure(task, us.load(base), seed)}
    if task != "language" and not (teacher / "config.json").exists():  # a larger model, trained for longer
        big = {**settings, "model": {**settings["model"], "width": 96, "inner_width": 192}}
        us.train({**big, "train": {**settings["train"], "updates": 2 * updates}}, teacher)
    budget = None
    for name, tables in remedies(task, teacher).items():
        now = {**settings, **tables}
        each = cost(now, base)
        budget = budget or each * more
        count = max(1, round(budget / each))
        run, watch = work / f"{task}-{seed}-{name.replace(' ', '-')}", Stopwatch()
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(base, run)
        now["train"] = {**settings["train"], "updates": updates + count}
        model = us.train(now, run, resume=True, reporter=watch)
        found[name] = {**measure(task, model, seed), "updates": count, "seconds": sum(watch.seconds)}
        print(json.dumps({"seed": seed, "name": name, **found[name]}), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=sorted(REWARD))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--more", type=int, default=400, help="updates of maximum likelihood, afterwards")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.modules["matplotlib"] = None  # pictures of the curves take longer than these runs
    sys.path.insert(0, str(Path(__file__).parent))  # where the reward is
    work = args.out or Path(tempfile.mkdtemp())
    seeds = [study(args.task, seed, args.updates, args.more, work) for seed in range(1, args.seeds + 1)]
    columns = list(seeds[0]["maximum likelihood"])
    print(f"\n| {args.task} | {' | '.join(columns)} |\n|---" + "|---" * len(columns) + "|")
    for name in seeds[0]:
        had = [column for column in columns if column in seeds[0][name]]  # nothing has been spent before
        said = [_spread([it[name][column] for it in seeds]) if column in had else "" for column in columns]
        print(f"| {name} | {' | '.join(said)} |")


def _spread(values):
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {spread:.3f}"


if __name__ == "__main__":
    main()
