"""Compare log-likelihoods that lm-evaluation-harness gets from our server with those of `us.score`.

    python -m venv harness && harness/bin/pip install "lm-eval[api]" -c constraints.txt
    python benchmarks/harness.py --lm-eval harness/bin/lm_eval --model smollm2

A generated multiple-choice task is run with `local-completions`. Every log-likelihood and the accuracy must equal those
of the same model in this process; otherwise the exit status is 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import unspool as us
from serve import served

QUESTIONS = (
    ("The capital of France is", (" Paris", " Rome", " a sandwich"), 0),
    ("Two and two make", (" four", " seven", " blue"), 0),
    ("Water is made of hydrogen and", (" gold", " oxygen", " patience"), 1),
    ("At night one can see the", (" square root", " stars", " noon"), 1),
    ("A naïve café owner said: “", ("Welcome!", "Ω≈ç√", "zzzz qqqq"), 0),
)
NEAR = 1e-5
"""Relative; the server writes numbers in single precision."""
TASK = {
    "task": "questions",
    "dataset_path": "json",
    "test_split": "train",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}


def write_task(folder):
    """The task and its questions; JSON is YAML, too."""
    data = folder / "questions.jsonl"
    names = ("question", "choices", "answer")
    data.write_text("".join(json.dumps(dict(zip(names, it, strict=True))) + "\n" for it in QUESTIONS))
    task = {**TASK, "dataset_kwargs": {"data_files": str(data)}}
    (folder / "questions.yaml").write_text(json.dumps(task))


def by_harness(program, name, url, folder):
    """What the harness found: the log-likelihoods of every question, and the accuracy."""
    model = {"model": name, "base_url": f"{url}/v1/completions", "tokenizer": folder / "tokenizer"}
    command = [program, "--model", "local-completions", "--tasks", "questions", "--include_path", folder]
    command += ["--output_path", folder / "out", "--log_samples", "--batch_size", "1"]
    command += ["--model_args", ",".join(f"{key}={value}" for key, value in model.items())]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    subprocess.run(command, check=True, env={**os.environ, **offline}, stdout=subprocess.DEVNULL)
    (samples,) = (folder / "out").rglob("samples_questions_*.jsonl")
    found = sorted(map(json.loads, samples.read_text().splitlines()), key=lambda it: it["doc_id"])
    (results,) = (folder / "out").rglob("results_*.json")
    accuracy = json.loads(results.read_text())["results"]["questions"]["acc,none"]
    return [[float(said[0][0]) for said in it["resps"]] for it in found], accuracy


def in_process(model):
    """The same by `us.score`."""
    found = []
    for question, choices, _ in QUESTIONS:
        given = model.tokenizer.encode(question)
        wholes = [model.tokenizer.encode(question + choice) for choice in choices]
        assert all(whole[: len(given)] == given for whole in wholes), "a token stands across the border"
        found.append([sum(us.score(model, given, whole[len(given) :]).logps) for whole in wholes])
    best = [row.index(max(row)) for row in found]
    return found, sum(it == answer for it, (_, _, answer) in zip(best, QUESTIONS, strict=True)) / len(best)


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lm-eval", required=True, help="the program lm_eval, of any environment")
    parser.add_argument("--model", default="smollm2")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_task(folder)
        model = us.load(args.model)
        us.save(model, folder / "tokenizer", format="huggingface")
        with served(args.model, 64) as url:
            theirs, their_accuracy = by_harness(args.lm_eval, args.model, url, folder)
    ours, our_accuracy = in_process(model)
    pairs = [(a, b) for one, other in zip(theirs, ours, strict=True) for a, b in zip(one, other, strict=True)]
    worst = max(abs(a - b) / abs(b) for a, b in pairs)
    print(f"{len(pairs)} log-likelihoods: the largest relative difference is {worst:.1e}")
    print(f"accuracy: {their_accuracy} by the harness, {our_accuracy} in this process")
    return 0 if worst <= NEAR and their_accuracy == our_accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
