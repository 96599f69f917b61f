"""A run that is killed again and again ends with the very bits of one that was left in peace.

This file is also the script that does it: a process of its own, with torch loaded once and one thread, forks a
child for every attempt. A child kills itself with SIGKILL at a chosen step (before a file is flushed, renamed,
linked or removed, in the middle of writing one, between two batches of an update), or is killed from outside
at a random instant.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STEPS, RECURRENT_STEPS, RANDOM_KILLS, UPDATES = 40, 15, 20, 16


def recipe(folder):
    return {
        "seed": 3,
        "data": {"kind": "lines", "train": str(folder / "text.txt"), "valid_lines": 8},
        "tokenizer": {"kind": "characters"},
        "batches": {"kind": "bucketed", "tokens": 64},
        "model": {
            "kind": "transformer_lm",
            **{"width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "head_width": 8, "inner_width": 24},
            **{"context": 32, "dropout": 0.2},
        },
        "objective": {"smoothing": 0.1},
        "schedule": {"kind": "cosine", "warmup": 4},
        # A checkpoint after every update: most of the time is spent in writing.
        "train": {
            **{"updates": UPDATES, "accumulate": 3, "lr": 0.01, "log_every": 1, "validate_every": 5},
            **{"checkpoint_every": 1, "keep": 2},
        },
    }


def recurrent(folder):
    """A recurrent model on packed batches."""
    return recipe(folder) | {
        "batches": {"kind": "packed", "rows": 2, "length": 5},
        "model": {"kind": "rnn_lm", "width": 12, "layers": 2, "dropout": 0.2},
    }


def write_text(folder):
    rng = random.Random(1)
    words = ["".join(rng.choice("abcd") for _ in range(rng.randint(2, 14))) for _ in range(64)]
    (folder / "text.txt").write_text("\n".join(words) + "\n", encoding="utf-8")


def arm(step):
    """Kill this process at the step-th moment at which a kill might do harm; 0 never does."""
    import unspool.data.batches as batches
    import unspool.models.loading.run_folder as folder
    import unspool.training.run_folder as checkpoint
    from unspool import io

    seen = 0

    def moment():
        nonlocal seen
        seen += 1
        if seen == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(owner, name):
        original = getattr(owner, name)

        def wrapped(*args, **options):
            moment()
            return original(*args, **options)

        setattr(owner, name, wrapped)

    def half(tensors, path, *args):
        original_save(tensors, path, *args)
        if seen + 1 == step:
            os.truncate(path, Path(path).stat().st_size // 2)
        moment()

    original_save = checkpoint.save_file
    checkpoint.save_file = folder.save_file = half
    for owner, name in (
        (io, "fsync_path"),
        (io, "fsync_folder"),
        (checkpoint, "_hash"),
        (Path, "rename"),
        (Path, "replace"),
        (os, "link"),
        (shutil, "rmtree"),
        (batches.BucketFeed, "batch"),
        (batches.PackFeed, "batch"),
    ):
        before(owner, name)


def child(folder, run, step, recipe=recipe):
    """Train in a fork; its process number."""
    number = os.fork()
    if number:
        return number
    try:
        from unspool.training import train

        arm(step)
        train(recipe(folder), run, resume=True)
    except BaseException as error:
        print(type(error).__name__, error, file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def readable(run):
    """Whether everything that is there can be read: the updates of the newest checkpoint, or 0."""
    from unspool.models.loading import load_folder
    from unspool.training.run_folder import newest_checkpoint as newest

    def fail(text):
        raise AssertionError(text)

    found = newest(run, fail) if run.exists() else None
    if found is None:
        return 0
    load_folder(found.path)
    if (run / "last.json").exists():
        json.loads((run / "last.json").read_text(encoding="utf-8"))
    if (run / "config.json").exists():
        load_folder(run)
    return found.update


def harness(folder):
    """All kills; what came of them, as JSON."""
    from unspool.training import train

    write_text(folder)
    rng, killed, finished = random.Random(2), [], []
    train(
        recipe(folder), folder / "whole"
    )  # here, not in a child: all that is imported now, no child imports

    def wait(number):
        status = os.waitpid(number, 0)[1]
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)

    for step in range(1, STEPS + 1):
        killed.append(wait(child(folder, folder / "steps", step)))
        readable(folder / "steps")
    finished.append(wait(child(folder, folder / "steps", 0)))

    train(recurrent(folder), folder / "recurrent_whole")
    for step in range(2, 2 * RECURRENT_STEPS + 1, 2):
        killed.append(wait(child(folder, folder / "recurrent", step, recurrent)))
        readable(folder / "recurrent")
    finished.append(wait(child(folder, folder / "recurrent", 0, recurrent)))

    began = time.monotonic()
    assert wait(child(folder, folder / "timed", 0)) == 0
    span = time.monotonic() - began
    run, at = 0, []
    while at.count(signal.SIGKILL) < RANDOM_KILLS:
        out = folder / f"random{run}"
        number = child(folder, out, 0)
        time.sleep(span * rng.uniform(0.0, 0.5))
        os.kill(number, signal.SIGKILL)
        at.append(wait(number))
        if readable(out) == UPDATES:
            run += 1
    finished += [wait(child(folder, folder / f"random{number}", 0)) for number in range(run + 1)]
    runs = ["steps", "recurrent", *(f"random{number}" for number in range(run + 1))]
    print(json.dumps({"steps": killed, "random": at, "finished": finished, "runs": runs}))


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crash")
    done = subprocess.run(
        [sys.executable, __file__, folder],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def whole(folder, name):
    """The run that was left in peace."""
    return folder / ("recurrent_whole" if name == "recurrent" else "whole")


def points(run):
    """The curves, but for the time that they took."""
    lines = (run / "curves.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: it for key, it in json.loads(line).items() if key != "seconds"} for line in lines]


def test_there_were_enough_kills(crashed):
    _, result = crashed
    assert result["steps"].count(signal.SIGKILL) >= 40
    assert result["random"].count(signal.SIGKILL) == RANDOM_KILLS
    assert set(result["finished"]) == {0}


def test_every_run_ends_with_the_same_bits(crashed):
    folder, result = crashed
    last = f"checkpoints/{UPDATES:08d}"
    for name in result["runs"]:
        for file in ("model.safetensors", f"{last}/model.safetensors", f"{last}/memory.safetensors"):
            assert (folder / name / file).read_bytes() == (whole(folder, name) / file).read_bytes(), (
                name,
                file,
            )


def test_every_update_is_in_the_curves_once(crashed):
    folder, result = crashed
    for name in result["runs"]:
        expected = points(whole(folder, name))
        assert [it["update"] for it in expected if "loss" in it] == list(range(1, UPDATES + 1))
        assert points(folder / name) == expected


def test_nothing_unfinished_is_left(crashed):
    folder, result = crashed
    for name in result["runs"]:
        assert [path for path in (folder / name).rglob("*unfinished*") if "data" not in path.parts] == []


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    sys.modules["matplotlib"] = None  # pictures take longer than these runs
    harness(Path(sys.argv[1]))
