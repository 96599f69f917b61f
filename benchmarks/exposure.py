"""Remedies for exposure bias at equal compute: gap and quality, before and after.

    python benchmarks/exposure.py language    [--seeds 3] [--updates 400] [--more 400] [--out FOLDER]
    python benchmarks/exposure.py dates       [--seeds 3] [--updates 400] [--more 400] [--out FOLDER]
    python benchmarks/exposure.py translation --pairs deu.txt [--updates 1200] [--more 600] [--out FOLDER]

A model is trained by maximum likelihood. Each objective then continues from a copy of that run, for as much CPU time as
maximum likelihood needs for `--more` updates: the cost of an update is timed first, and an expensive objective gets
fewer updates (`seconds` is the time that it took).

`language`: a known language with long-distance agreement and a share of random words (NOISE), so that no sentence is
impossible and the truth is known after every prefix. The gap is the exact divergence after the model's own words minus
that after correct words; quality is the share of sampled sentences without an agreement or position error.
`dates`: dates to ISO dates. The gap is the extra loss of the right answer after own tokens, the excess is the gap minus
that of a perfect model, and quality is the share of right greedy answers.
`translation`: short German sentences to English, from a file of pairs with English first. The learning rate falls to a
tenth before the remedies start and stays there; quality is BLEU and chrF of greedy translations.
"""

import argparse
import json
import math
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import torch

import unspool as us
from peers.stopwatch import Stopwatch
from unspool.data.known_languages import made_data
from unspool.diagnose.exposure_bias import exposure, true_exposure
from unspool.evaluate.reference_overlap import overlap

LANGUAGE, NOISE = {"kind": "agreement", "genders": 2, "embed": 0.2}, 0.02
DATES = {"kind": "dates"}
PAIRS, HELD_OUT, WORDS = 11_500, {"valid": 500, "test": 1000}, range(3, 7)
"""Of a collection of translations: how many pairs are kept, how many of them are held out, words of a sentence."""


def possible(said, wanted):  # noqa: ARG001 — the reward of the recipe for the language
    """1 for a sentence that the language can speak without noise."""
    words = known().new_tokenizer().encode(said)
    return float(math.isfinite(known().language.log_prob(words)))


@cache
def known():
    return made_data.LanguageData(language=LANGUAGE, noise=NOISE).known


class Language:
    """Sentences of a language with long-distance agreement."""

    reward, prompt = "exposure:possible", 1

    def tables(self, seed):
        return {
            "data": {
                "kind": "language",
                "language": LANGUAGE,
                "noise": NOISE,
                "train": 40_000,
                "valid": 200,
                "seed": seed,
            },
            "batches": {"kind": "bucketed", "tokens": 512},
            "model": {"kind": "transformer_lm", "width": 48, "heads": 4, "layers": 2, "inner_width": 96},
            "schedule": {"kind": "constant", "warmup": 50},
            "train": {"lr": 2e-3},
        }

    def later(self, settings):
        return settings

    def teacher(self, settings):  # noqa: ARG002 — its most probable sentence is the same every time
        return None

    def measure(self, model, seed):  # noqa: ARG002 — the truth is of the language, not of a sample
        found = true_exposure(model, known(), (1, 2, 4, 8, 12), texts=1000, seed=7)
        said = us.generate(
            model, [[known().bos]] * 1000, us.Sample(), max_new_tokens=60, seed=list(range(1000))
        )
        texts = [[token for token in it.tokens if token != known().eos] for it in said]
        right = sum(math.isfinite(known().language.log_prob(it)) for it in texts) / len(texts)
        return {**of_gap(found), "quality": right}


class Dates:
    """Dates in several ways of writing → ISO dates, character by character."""

    reward, prompt = "chrf", 8

    def tables(self, seed):
        return {
            "data": {"kind": "task", "task": DATES, "train": 1500, "valid": 200, "seed": seed},
            "tokenizer": {"kind": "characters"},
            "batches": {"kind": "bucketed", "tokens": 512},
            "model": seq2seq(48),
            "schedule": {"kind": "constant", "warmup": 50},
            "train": {"lr": 2e-3},
        }

    def later(self, settings):
        return settings

    def teacher(self, settings):
        """Twice as wide, trained for twice as long."""
        train = {**settings["train"], "updates": 2 * settings["train"]["updates"]}
        return {**settings, "model": seq2seq(96), "train": train}

    def measure(self, model, seed):
        rows = list(made_data.TaskData(task=DATES, train=10, valid=500, seed=seed).valid_rows(None))
        found, said = answers(model, rows, (1, 2, 4, 6, 8), 20)
        right = sum(it == to for it, (_, to) in zip(said, rows, strict=True)) / len(rows)
        return {**found, "quality": right}


class Translation:
    """Short German sentences → English; the learning rate has fallen before the remedies begin."""

    reward, prompt = "chrf", 8

    def __init__(self, pairs, work):
        self.folder = work / "pairs"
        if not (self.folder / "test.tsv").exists():
            short_pairs(pairs, work / "short.tsv")
            split = Path(__file__).parents[1] / "recipes/split_pairs.py"
            sizes = [it for name, count in HELD_OUT.items() for it in (f"--{name}", str(count))]
            asked = [sys.executable, str(split), str(work / "short.tsv"), "--out", str(self.folder), *sizes]
            subprocess.run(asked, check=True)

    def tables(self, seed):  # noqa: ARG002 — the sentences are the same for every seed
        files = {name: str(self.folder / f"{name}.tsv") for name in ("train", "valid")}
        return {
            "data": {"kind": "tsv", **files, "source": 2, "target": 1},
            "tokenizer": {"kind": "bpe", "vocab_size": 2000},
            "batches": {"kind": "bucketed", "tokens": 1024},
            "model": {**seq2seq(96), "dropout": 0.1},
            "schedule": {"kind": "cosine", "warmup": 100, "floor": 0.1},
            "train": {"lr": 3e-3},
        }

    def later(self, settings):
        """The learning rate stays where it has fallen to."""
        return {**settings, "schedule": {"kind": "constant"}, "train": {**settings["train"], "lr": 3e-4}}

    def teacher(self, settings):
        """Twice as wide, and the best by validation; one serves all seeds."""
        train = {**settings["train"], "final": "best", "validate_every": 100, "checkpoint_every": 100}
        return {**settings, "seed": 1, "model": {**seq2seq(192), "dropout": 0.2}, "train": train}

    def measure(self, model, seed):  # noqa: ARG002
        lines = (self.folder / "test.tsv").read_text(encoding="utf-8").splitlines()
        rows = [tuple(reversed(line.split("\t"))) for line in lines]
        found, said = answers(model, rows, (1, 2, 4, 6), 30)
        score = overlap(said, [to for _, to in rows])
        return {**found, "BLEU": score.bleu, "chrF": score.chrf}


def short_pairs(pairs, path):
    """Some of the pairs whose sentences are short, and of more than a word or two."""
    lines = pairs.read_text(encoding="utf-8").splitlines()
    rows = dict.fromkeys(tuple(map(str.strip, line.split("\t")[:2])) for line in lines)
    short = [row for row in rows if all(len(it.split()) in WORDS for it in row)]
    if len(short) < PAIRS:
        raise SystemExit(
            f"{pairs} has {len(short):,} pairs of {WORDS[0]} to {WORDS[-1]} words: {PAIRS:,} are needed"
        )
    chosen = random.Random(1).sample(short, PAIRS)
    path.write_text("".join("\t".join(row) + "\n" for row in chosen), encoding="utf-8")


def seq2seq(width):
    sizes = {"width": width, "heads": 4, "inner_width": 2 * width}
    return {"kind": "transformer_seq2seq", **sizes, "encoder_layers": 2, "decoder_layers": 2}


def answers(model, rows, lengths, longest):
    """The gap on pairs of texts, and what greedy search answers."""
    text = model.tokenizer
    pairs = [
        (text.encode(it), [*[t for t in text.encode(to) if t != text.bos_id], min(text.eos_ids)])
        for it, to in rows
    ]
    found = exposure(model, pairs, lengths, span=4, seed=7)
    said = us.generate(model, [it for it, _ in rows], us.Greedy(), max_new_tokens=longest)
    return of_gap(found), [it.text for it in said]


def of_gap(found):
    texts = sum(it.texts for it in found.points)
    return {
        "after right ones": sum(it.right * it.texts for it in found.points) / texts,
        "gap": found.gap,
        "excess": found.excess,
        "low": found.interval.low,
        "high": found.interval.high,
    }


def recipe(task, seed, updates):
    tables = task.tables(seed)
    often = {"validate_every": 10**6, "checkpoint_every": 10**6}
    tables["train"] |= {"updates": updates, "final": "last", "threads": 1, **often}
    return {"seed": seed, **tables}


def remedies(task, teacher):
    """Name → the tables that replace [objective] and [[auxiliary]]."""
    ask = {"prompt": task.prompt, "stretch": 1.5}
    decay = {"kind": "linear", "begin": 0.75, "slope": 0.0}  # three of four tokens are the right ones
    rewarded = {"reward": task.reward, **ask}
    risk = {"kind": "minimum_risk", "samples": 4, "alpha": 0.05, "weight": 2.0, **rewarded}
    found = {
        "maximum likelihood": {},
        "scheduled sampling": {"objective": {"kind": "scheduled_sampling", "decay": decay}},
        "unlikelihood": {"auxiliary": [{"kind": "unlikelihood", "weight": 0.2}]},
        "sequence unlikelihood": {"auxiliary": [{"kind": "sequence_unlikelihood", "n": 4, **ask}]},
        "reinforce": {"auxiliary": [{"kind": "reinforce", "weight": 0.3, **rewarded}]},
        "minimum risk": {"auxiliary": [risk]},
    }
    if teacher is not None:
        found["distillation"] = {"objective": {"kind": "distillation", "teacher": str(teacher), **ask}}
    return found


def cost(settings, folder, updates=12):
    """CPU seconds of an update: the mean of some, without the first ones, for which things are loaded."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, watch = Path(scratch) / "run", Stopwatch()
        shutil.copytree(folder, copy)
        more = settings["train"]["updates"] + updates
        longer = {**settings, "train": {**settings["train"], "updates": more}}
        us.train(longer, copy, resume=True, reporter=watch, trust_code=True)
    return statistics.mean(watch.seconds[updates // 4 :])


def study(name, task, seed, updates, more, work):
    """Name → what was measured, of one seed: before, and after each remedy for the CPU time of `more` updates."""
    base, settings = work / f"{name}-{seed}", recipe(task, seed, updates)
    if not (base / "config.json").exists():
        us.train(settings, base)
    found = {"before": measured("before", task, us.load(base), seed)}
    asked, teacher = task.teacher(settings), None
    if asked is not None:
        teacher = work / f"{name}-{asked['seed']}-teacher"
        if not (teacher / "config.json").exists():
            us.train(asked, teacher)
            measured("teacher", task, us.load(teacher), seed)
    settings = task.later(settings)
    budget = None
    for remedy, tables in remedies(task, teacher).items():
        now = {**settings, **tables}
        each = cost(now, base)
        budget = budget or each * more
        count = max(1, round(budget / each))
        run, watch = work / f"{name}-{seed}-{remedy.replace(' ', '-')}", Stopwatch()
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(base, run)
        now["train"] = {**settings["train"], "updates": updates + count}
        model = us.train(now, run, resume=True, reporter=watch, trust_code=True)
        spent = {"updates": count, "seconds": sum(watch.seconds)}
        found[remedy] = measured(remedy, task, model, seed) | spent
        print(json.dumps(spent), flush=True)
    return found


def measured(name, task, model, seed):
    found = task.measure(model, seed)
    print(json.dumps({"seed": seed, "name": name, **found}), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=["dates", "language", "translation"])
    parser.add_argument(
        "--pairs", type=Path, help="of the translation: English, a tab, German, a pair a line"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--more", type=int, default=400, help="updates of maximum likelihood, afterwards")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.task == "translation" and (args.pairs is None or not args.pairs.is_file()):
        said = "--pairs is not given" if args.pairs is None else f"{args.pairs} is not there"
        raise SystemExit(f"{said}: name a file with a pair of sentences a line, English first")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.modules["matplotlib"] = None  # pictures of the curves take longer than these runs
    sys.path.insert(0, str(Path(__file__).parent))  # where the reward is
    work = args.out or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    tasks = {"dates": Dates, "language": Language, "translation": lambda: Translation(args.pairs, work)}
    task, each = tasks[args.task](), range(1, args.seeds + 1)
    seeds = [study(args.task, task, seed, args.updates, args.more, work) for seed in each]
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
