"""`unspool lab run NAME … | --all`: measure, seed by seed; what is known already is not measured again."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from unspool.cli.lab.choice import add_result_options, chosen, known, say, seeds_of
from unspool.cli.output import json_line

if TYPE_CHECKING:
    from unspool.lab.claim import Claim

SUMMARY = "Measure claims, and say whether they are reproduced."
EXAMPLES = """examples:
  unspool lab run greedy_trigram
  unspool lab run likelihood_trap degeneration --seeds 1 2 3 4 5
  unspool lab run --all
  unspool lab run --all --quick --json

Each claim takes seconds to a minute on one core. A result is kept as soon as it is there, by claim, size,
seed and version of the code: after Ctrl-C or a kill the same command goes on where it was. The exit status is
1 where an experiment failed; a claim that is not reproduced is a result, and no failure.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool lab run` takes."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="of a claim; `unspool lab list` names them")
    parser.add_argument("--all", action="store_true", help="every claim")
    add_result_options(parser)
    parser.add_argument("--again", action="store_true", help="measure also what is known already")
    parser.add_argument("--json", action="store_true", help="one JSON object a claim, with all numbers")


def run(args: argparse.Namespace) -> int:
    """Measure, then say what was found."""
    from unspool.lab.claims import CLAIMS
    from unspool.lab.results import results_folder
    from unspool.lab.running import run as measure

    claims, seeds = chosen(args.names, args.all, CLAIMS), seeds_of(args)
    failed: list[str] = []
    with _bar(claims, seeds) as progress:
        for done in measure(
            claims,
            seeds,
            folder=results_folder(args.folder),
            quick=args.quick,
            again=args.again,
            progress=progress,
            warn=say,
        ):
            if done.error is not None:
                if getattr(args, "debug", False):
                    traceback.print_exception(done.error)
                failed.append(
                    f"{done.claim.name}, seed {done.seed}: {type(done.error).__name__}: {done.error}"
                )
            if done.seed == seeds[-1]:
                _tell(args, done.claim)
    for words in failed:
        say(f"failed: {words}")
    return 1 if failed else 0


def _tell(args: argparse.Namespace, claim: Claim) -> None:
    from unspool.lab.claim import silent

    (it,) = known(args, [claim], silent)
    if args.json:
        print(json_line(it.record()), flush=True)
        return
    verdict = "measured, quickly" if args.quick and it.results else it.verdict
    print(f"{claim.name}: {verdict}\n  {claim.statement}", flush=True)
    for words, held, seeds in it.parts:
        print(f"  {held} of {seeds} seeds: {words}")
    for name, each in it.spreads.items():
        print(f"    {name}: {each}", flush=True)


@contextmanager
def _bar(claims: Sequence[Claim], seeds: Sequence[int]) -> Iterator[Callable[[Claim, int, float], None]]:
    """How far it has come, with an estimate, where standard error is a terminal."""
    if not sys.stderr.isatty():
        from unspool.lab.claim import silent

        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    places = {claim.name: place for place, claim in enumerate(claims)}
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=len(claims) * len(seeds))

        def progress(claim: Claim, seed: int, share: float) -> None:
            done = places[claim.name] * len(seeds) + list(seeds).index(seed) + share
            bar.update(task, completed=done, description=f"{claim.name}, seed {seed}")

        yield progress
