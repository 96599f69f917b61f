"""What --ray takes with it: the size of the pool and of a block, and where the parts go."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from unspool.cli.parser import positive


def add_ray_options(parser: argparse.ArgumentParser, corpus: str) -> None:
    """For a verb whose corpus is given by the option `corpus`."""
    group = parser.add_argument_group(
        "a corpus, on one machine or many",
        f"through Ray (pip install 'unspool[ray]'): {corpus} is then a file of JSON lines or Parquet, or a "
        "folder of them, and may be larger than memory; --output names a folder. A command that was ended is "
        "given again, and goes on where it was.",
    )
    group.add_argument(
        "--ray",
        action="store_true",
        help="share the work among processes: of the cluster that RAY_ADDRESS names or that runs on this "
        "machine, else of this machine alone",
    )
    group.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="how many, each with the model in its memory (default: one a processor, but one)",
    )
    group.add_argument(
        "--block",
        type=positive,
        metavar="N",
        help="lines that are done and kept together (default: 256)",
    )


def without_ray(args: argparse.Namespace) -> None:
    """Refuse what means nothing without --ray."""
    for name in ("workers", "block"):
        if getattr(args, name) is not None:
            raise ValueError(f"--{name} goes with --ray: give that, too")


def corpus_of(args: argparse.Namespace, path: Path, columns: tuple[str, ...]) -> Any:
    """The corpus at `path`, and the folder that --output names."""
    from unspool.adapters.ray.corpus_blocks import corpus_files
    from unspool.adapters.ray.corpus_job import ROWS, Corpus

    if args.output is None:
        raise ValueError("--ray keeps its work in a folder: name one with --output FOLDER")
    return Corpus(corpus_files(path), args.output, columns, args.block or ROWS)


def pool_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the pool of workers is told."""
    return {"workers": args.workers, "gpus": 1 if args.device.startswith("cuda") else 0}
