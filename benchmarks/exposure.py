"""What each remedy for exposure bias is worth at equal compute: gap and quality, before and after.

    python benchmarks/exposure.py language [--seeds 3] [--updates 400] [--out FOLDER]
    python benchmarks/exposure.py dates    [--seeds 3] [--updates 400] [--out FOLDER]

A model learns by maximum likelihood. From there each objective goes on in a copy of the run, for as much CPU time
as maximum likelihood needs for `--more` updates: what a remedy's update costs is timed first, and it gets so
many fewer. `language` is one with long-distance agreement, whose truth is known: the gap is the exact
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
import time
import warnings
from pathlib import Path

import torch

import unspool as us
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
        "language": {"kind": "language", "language": LANGUAGE, "train": 3000, "valid": 200, "seed": seed},
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
    decay = {"kind": "linear", "begin": 0.75, "slope": 0.002, "floor": 0.25}
    return {
        "maximum likelihood": {},
        "scheduled sampling": {"objective": {"kind": "scheduled_sampling", "decay": decay}},
        "unlikelihood": {"auxiliary": [{"kind": "unlikelihood", "weight": 0.2}]},
        "sequence unlikelihood": {"auxiliary": [{"kind": "sequence_unlikelihood", "n": 4, **ask}]},
        "reinforce": {"auxiliary": [{"kind": "reinforce", "reward": reward, "weight": 1.0, **ask}]},
        "minimum risk": {
            "auxiliary": [
                {"kind": "minimum_risk", "reward": reward, "samples": 4, "alpha": 0.05, "weight": 2.0, **ask}
            ]
        },
        "distillation": {"objective": {"kind": "distillation", "teacher": str(teacher), **ask}},
    }


def measure(task, model, seed):
    if task == "language":
        found = true_exposure(model, known(), (1, 2, 4, 8, 12), texts=300, seed=7)
        said = us.generate(
            model, [[known().bos]] * 400, us.Sample(), max_new_tokens=60, seed=list(range(400))
        )
        right = (
            sum(math.isfinite(known().log_prob([t for t in it.tokens if t != known().eos])) for it in said)
            / 400
        )
    else:
        rows = list(Task(task={"kind": "dates"}, train=10, valid=200, seed=seed).valid_rows(None))
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
    return {"gap": found.gap, "quality": right}


def cost(settings, folder):
    """CPU seconds of an update, of a few."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "run"
        shutil.copytree(folder, copy)
        seconds = []
        for _ in range(2):  # the first time things are loaded and compiled
            begin, done = time.process_time(), settings["train"]["updates"]
            settings = {**settings, "train": {**settings["train"], "updates": done + 6}}
            us.train(settings, copy, resume=True)
            seconds.append((time.process_time() - begin) / 6)
    return seconds[1]


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
    found = {}
    for seed in range(1, args.seeds + 1):
        base = work / f"{args.task}-{seed}"
        settings = recipe(args.task, seed, args.updates)
        if not (base / "config.json").exists():
            us.train(settings, base)
        teacher = work / f"{args.task}-{seed}-teacher"
        if not (teacher / "config.json").exists():  # a larger model, trained for longer
            big = {**settings, "model": {**settings["model"], "width": 96, "inner_width": 192}}
            big["train"] = {**settings["train"], "updates": 2 * args.updates}
            us.train(big, teacher)
        found.setdefault("before", []).append(measure(args.task, us.load(base), seed))
        budget = None
        for name, tables in remedies(args.task, teacher).items():
            now = {**settings, **tables}
            each = cost(now, base)
            budget = budget or each * args.more
            updates = args.updates + max(1, round(budget / each))
            run = work / f"{args.task}-{seed}-{name.replace(' ', '-')}"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(base, run)
            now["train"] = {**settings["train"], "updates": updates}
            model = us.train(now, run, resume=True)
            result = {**measure(args.task, model, seed), "updates": updates - args.updates}
            found.setdefault(name, []).append(result)
            print(json.dumps({"seed": seed, "name": name, **result}), flush=True)
    print(f"\n| {args.task} | updates | gap | quality |\n|---|---|---|---|")
    for name, results in found.items():
        said = [_spread([it[key] for it in results]) for key in ("gap", "quality")]
        more = round(statistics.mean(it.get("updates", 0) for it in results))
        print(f"| {name} | {more or ''} | {said[0]} | {said[1]} |")


def _spread(values):
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {spread:.3f}"


if __name__ == "__main__":
    main()
