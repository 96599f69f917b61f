"""Several processes train as one does: the same losses, one of them killed, and resumed by any number.

This file is also the script that does it: it loads torch once and forks the processes, with the environment
that torchrun would give them. One test starts the real torchrun.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

UPDATES, KILLED_AT = 10, 6
KINDS = ("recurrent", "remedies", "masked", "adapted")


REMEDIES = {
    "objective": {"kind": "scheduled_sampling", "decay": {"kind": "exponential", "k": 0.8}},
    "auxiliary": [
        {"kind": "reinforce", "reward": "chrf", "prompt": 2, "weight": 0.5, "begin": 2},
        {"kind": "minimum_risk", "reward": "exact_match", "prompt": 2, "samples": 3, "begin": 4},
        {"kind": "sequence_unlikelihood", "prompt": 2, "n": 2},
        {"kind": "unlikelihood", "weight": 0.1},
        {"kind": "attention_focus", "weight": 0.1},
    ],
}


SHAPE = {"width": 16, "heads": 2, "inner_width": 24, "dropout": 0.2}
SEQ2SEQ = {**SHAPE, "encoder_layers": 2, "decoder_layers": 2}
ENCODER = {"kind": "transformer", "layers": 2, **SHAPE}
SHARDED = {
    "classifier": ("labelled", {"encoder": ENCODER}),
    "masked_lm": ("lines", {"layers": 2, **SHAPE}),
    "masked_seq2seq": ("tsv", SEQ2SEQ),
    "rnn_lm": ("lines", {"width": 12, "layers": 2}),
    "rnn_seq2seq": ("tsv", {"width": 12}),
    "tagger": ("tagged", {"encoder": ENCODER}),
    "transformer_lm": ("lines", {"layers": 2, **SHAPE}),
    "transformer_seq2seq": ("tsv", SEQ2SEQ),
    "trigram": ("lines", {"width": 12, "inner_width": 12}),
}
"""A small model of every kind, and the data that it learns from."""
LONG = ("classifier", "masked_lm", "rnn_seq2seq", "transformer_seq2seq", "trigram")
"""Kinds that resemble another one in the parts that are sharded: `make test-long` trains them."""


def sharded(folder, model, **train):
    """A short run of a kind of model."""
    data, shape = SHARDED[model]
    changes = {
        "data": {"kind": data, "train": str(folder / f"{data}.txt"), "valid_lines": 9},
        "tokenizer": {"kind": "words" if data in ("labelled", "tagged") else "characters"},
        "model": {"kind": model, **shape},
        "objective": {"kind": "masked" if model.startswith("masked") else "cross_entropy"},
    }
    return plain(folder, updates=4, validate_every=2, **train) | changes


def recipe(folder, kind="plain", model=None, **train):
    """A run of the kind: what of a plain one it replaces; or a short one of a kind of model."""
    if model is not None:
        return sharded(folder, model, **train)
    sizes = {"width": 16, "layers": 2, "heads": 2, "inner_width": 24, "context": 64, "dropout": 0.2}
    other = {
        "plain": {},
        "recurrent": {
            "batches": {"kind": "packed", "rows": 2, "length": 6},
            "model": {"kind": "rnn_lm", "width": 12, "layers": 2, "dropout": 0.2},
        },
        # Everything that draws.
        "remedies": REMEDIES,
        # Places hidden at random, in validation, too; losses on attention see the same.
        "masked": {
            "model": {"kind": "masked_lm", **sizes},
            "objective": {"kind": "masked_diffusion"},
            "auxiliary": [{"kind": "attention_focus", "weight": 0.1}, {"kind": "attention_near"}],
        },
        # Adapters beside the weights of the first run.
        "adapted": {
            "tokenizer": None,
            "model": {"from": str(folder / "one"), "lora": {"rank": 2, "dropout": 0.1}},
        },
    }[kind]
    return {name: it for name, it in (plain(folder, **train) | other).items() if it is not None}


def plain(folder, **train):
    return {
        "seed": 3,
        "data": {"kind": "lines", "train": str(folder / "text.txt"), "valid_lines": 9},
        "tokenizer": {"kind": "characters"},
        "batches": {"kind": "bucketed", "tokens": 48},
        "model": {
            "kind": "transformer_lm",
            **{"width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "head_width": 8, "inner_width": 24},
            **{"context": 32, "dropout": 0.2},
        },
        "schedule": {"kind": "constant", "warmup": 4},
        "train": {
            **{"updates": UPDATES, "accumulate": 4, "lr": 0.01, "log_every": 1, "validate_every": 5},
            **{"checkpoint_every": 2, "final": "last"},
            **train,
        },
    }


def write_text(folder):
    rows = ["abcdefgh"[i % 5 : i % 5 + 2 + i % 4] * (1 + i % 3) for i in range(60)]
    lines = {
        "text": rows,
        "lines": rows,
        "tsv": [f"{row}\t{row[::-1]}" for row in rows],
        "labelled": [f"{' '.join(row)}\t{'odd' if len(row) % 2 else 'even'}" for row in rows],
        "tagged": [f"{' '.join(row)}\t{' '.join('v' if it in 'ae' else 'c' for it in row)}" for row in rows],
    }
    for name, found in lines.items():
        (folder / f"{name}.txt").write_text("\n".join(found) + "\n", encoding="utf-8")


def fork(rank, size, port, folder, run, kill, train):
    number = os.fork()
    if number:
        return number
    try:
        import unspool.training as room
        import unspool.training.loop as loop

        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        original = loop.apply_update

        def update(state, **options):
            if kill and rank == size - 1 and state.progress.update == KILLED_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(state, **options)

        loop.apply_update = update
        room.train(recipe(folder, **train), run, resume=True)
    except BaseException as error:
        print(rank, type(error).__name__, str(error)[:500], file=sys.stderr, flush=True)
        os._exit(3)
    os._exit(0)


def team(size, folder, run, kill=False, **train):
    """Train in several processes; how each of them ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    numbers = [fork(rank, size, port, folder, folder / run, kill, train) for rank in range(size)]
    statuses = [os.waitpid(number, 0)[1] for number in numbers]
    return [-os.WTERMSIG(it) if os.WIFSIGNALED(it) else os.WEXITSTATUS(it) for it in statuses]


def harness(folder, models):
    write_text(folder)
    ended = {
        "one": team(1, folder, "one"),
        "ddp": team(2, folder, "ddp"),
        "ddp, killed": team(2, folder, "ddp_killed", kill=True),
        "ddp, resumed": team(2, folder, "ddp_killed"),
        "fsdp": team(2, folder, "fsdp", shard=True),
        "fsdp, killed": team(2, folder, "fsdp_killed", kill=True, shard=True),
        "fsdp, resumed by one": team(1, folder, "fsdp_killed"),
    }
    for kind in KINDS:
        ended |= {
            f"{kind}, one": team(1, folder, f"{kind}_one", kind=kind),
            f"{kind}, killed": team(2, folder, f"{kind}_killed", kill=True, kind=kind),
            f"{kind}, resumed by one": team(1, folder, f"{kind}_killed", kind=kind),
        }
    for model in models:
        ended |= {
            f"{model}, one": team(1, folder, f"{model}_one", model=model),
            f"{model}, sharded": team(2, folder, f"{model}_sharded", model=model, shard=True),
        }
    print(json.dumps(ended))


@pytest.fixture(scope="module")
def models(request):
    """The kinds of models whose sharded runs are to be tested."""
    runs = {item.callspec.params.get("run") for item in request.session.items if hasattr(item, "callspec")}
    return [model for model in SHARDED if f"{model}_sharded" in runs]


@pytest.fixture(scope="module")
def trained(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    done = subprocess.run(
        [sys.executable, __file__, folder, *models],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1]), done.stderr


def curves(run):
    return [json.loads(line) for line in (run / "curves.jsonl").read_text(encoding="utf-8").splitlines()]


def test_only_the_killed_process_and_its_team_fail(trained, models):
    _, ended, errors = trained
    killed = [3, -signal.SIGKILL]
    expected = {"one": [0], "ddp": [0, 0], "ddp, killed": killed, "ddp, resumed": [0, 0]}
    expected |= {"fsdp": [0, 0], "fsdp, killed": killed, "fsdp, resumed by one": [0]}
    for kind in KINDS:
        expected |= {f"{kind}, one": [0], f"{kind}, killed": killed}
        expected |= {f"{kind}, resumed by one": [0]}
    for model in models:
        expected |= {f"{model}, one": [0], f"{model}, sharded": [0, 0]}
    assert ended == expected, errors


RUNS = ["ddp", "fsdp", *(f"{kind}_killed" for kind in ("ddp", "fsdp", *KINDS))]
SHARDED_RUNS = [f"{model}_sharded" for model in SHARDED]


def alone(run):
    if run in SHARDED_RUNS:
        return run.replace("_sharded", "_one")
    kind = run.partition("_")[0]
    return f"{kind}_one" if kind in KINDS else "one"


@pytest.mark.parametrize(
    "run",
    [
        *RUNS,
        *(
            pytest.param(run, marks=[pytest.mark.long] if model in LONG else [])
            for model, run in zip(SHARDED, SHARDED_RUNS, strict=True)
        ),
    ],
)
def test_losses_are_those_of_one_process(trained, run):
    folder, _, _ = trained
    one, many = curves(folder / alone(run)), curves(folder / run)
    assert [it["update"] for it in many] == [it["update"] for it in one]
    for a, b in zip(one, many, strict=True):
        for name in ("loss", "nll", "norm", "valid"):
            assert a.get(name) == pytest.approx(b.get(name), abs=1e-5)


@pytest.mark.parametrize("run", RUNS)
def test_the_model_is_that_of_one_process(trained, run):
    import torch

    from unspool.models.loading import load_folder

    folder, _, _ = trained
    one, many = (load_folder(folder / name).state_dict() for name in (alone(run), run))
    for name in one:
        torch.testing.assert_close(one[name], many[name], atol=1e-5, rtol=1e-4)


def test_every_kind_of_model_is_trained_with_sharded_weights():
    from unspool.models import MODELS

    assert set(SHARDED) == set(MODELS)


@pytest.mark.long
def test_torchrun_starts_the_command(tmp_path):
    import tomli_w

    write_text(tmp_path)
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(recipe(tmp_path, updates=2)), encoding="utf-8")
    command = ["-m", "unspool", "train", tmp_path / "recipe.toml", "--output", tmp_path / "run", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["update"] for line in done.stdout.splitlines()] == [1, 2]  # the first one speaks
    assert (tmp_path / "run" / "model.safetensors").is_file()


def test_ctrl_c_ends_all_processes_with_a_checkpoint_and_one_line(tmp_path):
    import tomli_w

    write_text(tmp_path)
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(recipe(tmp_path, updates=100_000)), encoding="utf-8")
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "unspool",
        "train",
    ]
    command += [tmp_path / "recipe.toml", "--output", tmp_path / "run", "--json"]
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=150)
    last = json.loads(out.splitlines()[-1])["update"] if out else 1
    told = [line for line in err.splitlines() if line.startswith("unspool:")]
    assert told == [
        f"unspool: stopped after update {last} of 100000; resume it with: unspool train --resume {tmp_path / 'run'}"
    ]
    assert json.loads((tmp_path / "run" / "last.json").read_text()) == {"checkpoint": f"{last:08d}"}


if __name__ == "__main__":
    import torch
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor
    import torch.nn.parallel

    torch.set_num_threads(1)
    sys.modules["matplotlib"] = None  # pictures take longer than these runs
    import unspool.training  # noqa: F401 — before the forks, not in each of them

    harness(Path(sys.argv[1]), sys.argv[2:])
