"""Which claims, which seeds, which results: what the verbs of the lab share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from unspool.cli.output import tell
from unspool.cli.parser import natural

if TYPE_CHECKING:
    from unspool.lab.claim import Claim
    from unspool.lab.results import Finding

SEEDS = (1, 2, 3)


def add_result_options(parser: argparse.ArgumentParser) -> None:
    """Which results: of which seeds and size, in which folder."""
    parser.add_argument(
        "--seeds",
        type=natural,
        nargs="+",
        default=list(SEEDS),
        metavar="N",
        help="each is measured by itself (default: 1 2 3; with --quick 1)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="seconds instead of minutes; such verdicts mean nothing"
    )
    parser.add_argument(
        "--folder", type=Path, metavar="PATH", help="where results are kept (default: in the user's cache)"
    )


def seeds_of(args: argparse.Namespace) -> list[int]:
    """The seeds that were asked for, each once."""
    if args.quick and list(args.seeds) == list(SEEDS):
        return [1]
    return list(dict.fromkeys(args.seeds))


def chosen(names: Sequence[str], everything: bool, claims: Sequence[Claim]) -> list[Claim]:
    """The claims of these names, in their own order; ValueError for a name that none has."""
    if everything == bool(names):
        raise ValueError("name the claims to run, or give --all; `unspool lab list` names them")
    by_name = {claim.name: claim for claim in claims}
    for name in names:
        if name not in by_name:
            near = get_close_matches(name.replace("-", "_"), by_name, 3, 0.4)
            meant = f"did you mean {' or '.join(near)}?" if near else "`unspool lab list` names them all"
            raise ValueError(f"there is no claim {name!r}: {meant}")
    return [claim for claim in claims if everything or claim.name in names]


def known(args: argparse.Namespace, claims: Sequence[Claim], warn: Callable[[str], None]) -> list[Finding]:
    """What has been measured so far."""
    from unspool.lab.results import findings, results_folder

    return findings(claims, seeds_of(args), folder=results_folder(args.folder), quick=args.quick, warn=warn)


def say(words: str) -> None:
    """To standard error."""
    tell(words)
