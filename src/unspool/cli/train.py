"""`unspool train`: train a model from a recipe, or resume an interrupted run."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.output import Result, print_message
from unspool.cli.parser import command, flag, option, output_option, repeated

if TYPE_CHECKING:
    from unspool.training.reporters import Reporter

EXAMPLES = """examples:
  unspool train recipe.toml --output runs/first
  unspool train recipe.toml --output runs/second --set train.lr=0.002 --set model.layers=2
  unspool train --resume runs/first
  unspool train recipe.toml --dry-run

several processes (each computes its share of train.accumulate batches):
  torchrun --nproc-per-node 2 -m unspool train recipe.toml --output runs/first --set train.accumulate=2

Ctrl-C writes a checkpoint. A resumed run ends with the same bits as an uninterrupted one.
"""
DIVERGED = 1
_SAME_AS_OUTPUT = object()
"""--resume without a value: the folder of --output."""


@command(
    EXAMPLES,
    option(
        "recipe",
        nargs="?",
        type=Path,
        metavar="RECIPE",
        help="a TOML file; not needed with --resume, which uses the recipe of the run",
    ),
    output_option("run folder for checkpoints, curves and the model", "RUN"),
    repeated("--set", "KEY=VALUE", "change a setting of the recipe: train.lr=0.002"),
    option(
        "--resume",
        nargs="?",
        const=_SAME_AS_OUTPUT,
        metavar="RUN",
        help="resume the interrupted run in this folder, or in --output",
    ),
    flag("--dry-run", "read the data, build the model and report the cost of the run without training"),
    json="one JSON object per point of the curves",
)
def train(args: argparse.Namespace) -> Result | int:
    """Train a model from a recipe."""
    if args.dry_run:
        from unspool.training.dry_run import dry_run

        if args.recipe is None:
            raise ValueError("no recipe: unspool train recipe.toml --dry-run")
        result = dry_run(args.recipe, args.set, trust_code=args.trust_code)
        return Result([asdict(result)], result.lines())
    recipe, folder, resume = run_paths(args)
    from unspool.training import Diverged, Stopped, train

    is_first = int(os.environ.get("RANK", "0")) == 0
    try:
        model = train(
            recipe,
            folder,
            resume=resume,
            changes=args.set,
            reporter=reporter(args.json),
            trust_code=args.trust_code,
        )
    except Stopped as stopped:
        if is_first:
            print_message(f"{stopped}; resume it with: unspool train --resume {folder}")
        return 128 + (stopped.signal or 2)
    except Diverged as diverged:
        print_message(str(diverged))
        return DIVERGED
    if is_first:
        command_name = "predict" if model.labels is not None else "generate"
        decoder = "" if model.infilling is None else ' --decoder "MaskPredict()"'
        print_message(f'wrote {folder}; try: unspool {command_name} "…" --model {folder}{decoder}')
    return 0


def run_paths(args: argparse.Namespace) -> tuple[Path, Path, bool]:
    resume = args.resume is not None
    names_folder = resume and args.resume is not _SAME_AS_OUTPUT
    folder = Path(args.resume) if names_folder else args.output
    if names_folder and args.output is not None and args.output != folder:
        raise ValueError(
            f"--resume {folder} and --output {args.output} name two run folders: give one of them"
        )
    if folder is None:
        raise ValueError("no run folder: give --output RUN or --resume RUN")
    if folder.is_file():
        raise NotADirectoryError(errno.ENOTDIR, "is a file; give the name of a folder", str(folder))
    recipe = args.recipe
    if recipe is None:
        recipe = folder / "recipe.toml"
        if not resume:
            raise ValueError(
                "no recipe: unspool train recipe.toml --output RUN, or unspool train --resume RUN"
            )
        if not recipe.is_file():
            raise FileNotFoundError(f"{folder} is not a run folder: {recipe.name} is missing")
    elif not recipe.is_file():
        raise FileNotFoundError(f"{recipe}: there is no such recipe")
    return recipe, folder, resume


def reporter(as_json: bool) -> Reporter:
    """A progress bar on a terminal, otherwise lines; only the first of several processes reports."""
    from unspool.training.reporters import BarReporter, LineReporter, NoReports

    if int(os.environ.get("RANK", "0")) > 0:
        return NoReports()
    if as_json:
        return LineReporter(as_json=True)
    return BarReporter() if sys.stderr.isatty() else LineReporter(sys.stderr)
