"""`unspool train`: a model from a recipe, interrupted and resumed as often as it takes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.output import tell
from unspool.cli.parser import positive
from unspool.cli.processes import run_processes

if TYPE_CHECKING:
    from unspool.training.reporters import Reporter

SUMMARY = "Train a model by a recipe."
EXAMPLES = """examples:
  unspool train recipe.toml --out runs/first
  unspool train recipe.toml --out runs/second --set train.lr=0.002 --set model.layers=2
  unspool train --resume runs/first
  unspool train recipe.toml --dry-run

several processes (each takes its share of train.accumulate batches):
  unspool train recipe.toml --out runs/first --set train.accumulate=2 --processes 2
  torchrun --nnodes 2 … -m unspool train recipe.toml --out runs/first --set train.accumulate=2

Ctrl-C writes a checkpoint first; a resumed run ends with the same bits as one that was never interrupted.
"""

DIVERGED = 1
_OUT = object()
"""--resume without a folder: the one in --out."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool train` takes."""
    parser.add_argument("recipe", nargs="?", type=Path, help="a TOML file; with --resume RUN, the run's own")
    parser.add_argument(
        "--out", type=Path, metavar="RUN", help="the run folder: checkpoints, curves, the model"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the recipe: train.lr=0.002; may be given several times",
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const=_OUT,
        metavar="RUN",
        help="go on with an interrupted run: RUN, or the one in --out",
    )
    parser.add_argument(
        "--processes",
        type=positive,
        default=1,
        metavar="N",
        help="as several processes of this machine (default: %(default)s); torchrun starts those of many",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="read the data and build the model, say what the run would take, and train nothing",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object for each point of the curves")


def run(args: argparse.Namespace) -> int:
    """Check what can be checked, then train."""
    if args.dry_run:
        return _dry(args)
    recipe, out, resume = where(args)
    if args.processes > 1:
        if "WORLD_SIZE" in os.environ:
            raise ValueError("--processes inside of torchrun: leave it out, torchrun has started them")
        return run_processes(args.processes, [sys.executable, "-m", "unspool", *_again(args, recipe, out)])

    from unspool.training import Diverged, Stopped, train

    first = int(os.environ.get("RANK", "0")) == 0
    try:
        model = train(
            recipe,
            out,
            resume=resume,
            changes=args.set,
            reporter=reporter(args.json),
            trust_code=args.trust_code,
        )
    except Stopped as stopped:
        if first:
            tell(f"{stopped}; unspool train --resume {out} goes on with it")
        return 128 + (stopped.signal or 2)
    except Diverged as diverged:
        tell(str(diverged))
        return DIVERGED
    if first:
        verb = "predict" if model.labels is not None else "generate"
        how = "" if model.infilling is None else ' --decoder "MaskPredict()"'
        tell(f'the model is in {out}: unspool {verb} "…" --model {out}{how}')
    return 0


def _dry(args: argparse.Namespace) -> int:
    if args.recipe is None:
        raise ValueError("no recipe: unspool train recipe.toml --dry-run")

    from unspool.training.dry_run import dry_run

    found = dry_run(args.recipe, args.set, trust_code=args.trust_code)
    print(json.dumps(asdict(found)) if args.json else "\n".join(found.lines()))
    return 0


def _again(args: argparse.Namespace, recipe: Path, out: Path) -> list[str]:
    """The same command for each of several processes."""
    argv = ["train", str(recipe), "--out", str(out), *(["--resume"] if args.resume is not None else [])]
    argv += [word for change in args.set for word in ("--set", change)]
    flags = ("trust_code", "json", "debug")
    return [*argv, *(f"--{flag.replace('_', '-')}" for flag in flags if getattr(args, flag))]


def where(args: argparse.Namespace) -> tuple[Path, Path, bool]:
    """The recipe, the run folder, and whether to go on with what is there."""
    resume = args.resume is not None
    named = resume and args.resume is not _OUT
    out = Path(args.resume) if named else args.out
    if named and args.out is not None and args.out != out:
        raise ValueError(f"--resume {out} and --out {args.out} are two run folders: give one of them")
    if out is None:
        raise ValueError("no run folder: give --out RUN (or --resume RUN)")
    recipe = args.recipe
    if recipe is None:
        recipe = out / "recipe.toml"
        if not resume:
            raise ValueError("no recipe: unspool train recipe.toml --out RUN, or unspool train --resume RUN")
        if not recipe.is_file():
            raise FileNotFoundError(f"{out} holds no run: there is no {recipe.name} in it")
    elif not recipe.is_file():
        raise FileNotFoundError(f"{recipe}: there is no such recipe")
    return recipe, out, resume


def reporter(as_json: bool) -> Reporter:
    """A bar on a terminal, lines elsewhere; only the first process of a team speaks."""
    from unspool.training.reporters import BarReporter, LineReporter, NoReports

    if int(os.environ.get("RANK", "0")) > 0:
        return NoReports()
    if as_json:
        return LineReporter(as_json=True)
    return BarReporter() if sys.stderr.isatty() else LineReporter(sys.stderr)
