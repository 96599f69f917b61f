"""Fine-tune a chat model with LoRA adapters on one CPU, and check that merging, exporting and resuming lose nothing.

    python benchmarks/finetune.py --train dialogues_train.txt --valid dialogues_validation.txt --out runs/chat

Files have one dialogue per line with __eou__ between turns (DailyDialog). The script prints the loss per answer token on
held-out dialogues before and after; the difference between the merged model and the model with adapters (weights, and
log p in float64 and float32); the difference between transformers' logits and ours for the saved folder; and whether a
run that is killed (SIGKILL) three times and resumed ends with the same bits as an uninterrupted one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import unspool as us
from unspool.data import Bucketed, prepare
from unspool.data.chats import ChatLines
from unspool.interfaces import Clock
from unspool.models.loading.lora_file import ADAPTERS
from unspool.models.lora import find_adapters
from unspool.objectives import CrossEntropy

BATCHES = {"kind": "bucketed", "tokens": 512, "max_length": 256, "long": "cut"}


def recipe(args: argparse.Namespace, updates: int) -> dict[str, Any]:
    """What `unspool train` would read."""
    return {
        "seed": args.seed,
        "data": {"kind": "chat_lines", "train": str(args.train), "valid": str(args.valid)},
        "batches": BATCHES,
        "model": {"from": args.model, "lora": {"rank": args.rank, "alpha": 2.0 * args.rank}},
        "schedule": {"kind": "cosine", "warmup": max(1, updates // 20)},
        "train": {
            "updates": updates,
            "lr": args.lr,
            "threads": args.threads,
            "validate_every": 10 * updates,
            "checkpoint_every": max(1, updates // 2),
            "log_every": max(1, updates // 10),
            "final": "last",
        },
    }


@torch.no_grad()
def held_out(model: Any, valid: Path) -> tuple[float, int]:
    """−log p of an answer's token, and how many of these there are."""
    data = prepare(ChatLines(train=str(valid)), model.tokenizer, Bucketed(2048, 256, "cut"))
    nll = weight = 0.0
    for number in range(data.train.per_epoch):
        loss = CrossEntropy()(model.eval(), data.train.batch(number), Clock(0, 1))
        nll, weight = nll + loss.stats["nll"], weight + loss.weight
    return nll / weight, int(weight)


@torch.no_grad()
def merging(model: str, run: Path) -> dict[str, float]:
    """How far the merged model is from the one whose adapters stand beside its matrices."""
    merged, beside = us.load(run), us.load(model)
    us.models.load_adapters(beside, run)
    weights = 0.0
    for name, part in find_adapters(beside).items():
        exact = part.weight.double() + part.scale * part.lora_b.double() @ part.lora_a.double()
        weights = max(weights, float((merged.get_submodule(name).weight.double() - exact).abs().max()))
    text = merged.tokenizer.chat([{"role": "user", "content": "What do you do in the evening?"}])
    tokens = torch.tensor([merged.tokenizer.encode(text)])
    single = merged(tokens), beside(tokens)
    double = merged.double()(tokens), beside.double()(tokens)
    return {
        "weights": weights,
        "log p, float64": _apart(*double),
        "log p, float32": _apart(*single),
        "one model in float32 and in float64": max(map(_apart, single, double)),
    }


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())


@torch.no_grad()
def transformers_logits(run: Path) -> dict[str, float]:
    """How far transformers' logits of the saved folder are from ours, and how large these are."""
    from transformers import AutoModelForCausalLM

    model = us.load(run)
    with tempfile.TemporaryDirectory() as folder:
        us.save(model, Path(folder) / "hf", format="huggingface")
        theirs = AutoModelForCausalLM.from_pretrained(Path(folder) / "hf").eval()
        text = model.tokenizer.chat([{"role": "user", "content": "What do you do in the evening?"}])
        tokens = torch.tensor([model.tokenizer.encode(text)])
        found = {}
        for name in ("float32", "float64"):
            model, theirs = (it.to(getattr(torch, name)) for it in (model, theirs))
            ours = model.head.logits(model.hidden(tokens))
            found[f"logits, {name}"] = float((theirs(tokens).logits - ours).abs().max())
        return {**found, "largest logit": float(ours.abs().max())}


class KillAt:
    """Kills its own process after an update."""

    has_progress_bar = False

    def __init__(self, update: int) -> None:
        self.update = update

    def note(self, text: str) -> None: ...

    warn = note

    def follow(self, updates: Any, run: Any) -> None:  # noqa: ARG002
        for done in updates:
            if done.clock.update == self.update:
                os.kill(os.getpid(), signal.SIGKILL)


def killed_is_equal(args: argparse.Namespace, updates: int = 6) -> bool:
    """Whether a run that is killed after each second update ends with the same adapters to the bit."""
    asked = recipe(args, updates)
    asked["train"] |= {"checkpoint_every": 1, "keep": 1}
    found: list[Mapping[str, torch.Tensor]] = []
    with tempfile.TemporaryDirectory(dir=args.out.parent) as folder:
        for name, kills in (("whole", ()), ("killed", (1, 3, 5))):
            out = Path(folder) / name
            for at in (*kills, 0):
                again = [sys.executable, __file__, "--child", json.dumps([asked, str(out), at])]
                subprocess.run(again, check=at == 0)
            found.append(load_file(out / ADAPTERS))
    return all(torch.equal(it, found[1][name]) for name, it in found[0].items())


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        asked, out, at = json.loads(sys.argv[2])
        us.train(asked, out, resume=(Path(out) / "recipe.toml").exists(), reporter=KillAt(at))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", type=Path, required=True, help="dialogues to learn from")
    parser.add_argument("--valid", type=Path, required=True, help="dialogues that are held out")
    parser.add_argument("--out", type=Path, required=True, help="the run folder")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--skip-kills", action="store_true", help="leave the killed runs out")
    args = parser.parse_args()
    args.train, args.valid = (it.absolute() for it in (args.train, args.valid))
    torch.set_num_threads(args.threads)
    found: dict[str, Any] = {}
    found["before"], found["tokens"] = held_out(us.load(args.model), args.valid)
    print(json.dumps(found), flush=True)
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    from unspool.training.reporters import LineReporter

    us.train(recipe(args, args.updates), args.out, reporter=LineReporter(sys.stderr))
    found["minutes"] = (time.monotonic() - began) / 60
    found["minutes of the processor"] = (resource.getrusage(resource.RUSAGE_SELF).ru_utime - used) / 60
    found["after"], _ = held_out(us.load(args.out), args.valid)
    found |= {f"merged: {name}": it for name, it in merging(args.model, args.out).items()}
    found |= {f"transformers: {name}": it for name, it in transformers_logits(args.out).items()}
    if not args.skip_kills:
        found["killed and resumed: equal to the bit"] = killed_is_equal(args)
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
