"""`unspool lab`: list, measure and report the claims of the documentation."""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.output import Result, check_output, print_json, print_message, progress_bar, reserve_file
from unspool.cli.parser import CommandGroup, command, natural, option
from unspool.config import suggest
from unspool.errors import escape_json

if TYPE_CHECKING:
    from unspool.lab.claim import Claim
    from unspool.lab.results import Finding

SEEDS = (1, 2, 3)
LIST_EXAMPLES = """examples:
  unspool lab list
  unspool lab list --json
"""
RUN_EXAMPLES = """examples:
  unspool lab run greedy_trigram
  unspool lab run likelihood_trap degeneration --seeds 1 2 3 4 5
  unspool lab run --all
  unspool lab run --all --quick --json

Each claim takes seconds to a minute on one core. Every result is saved at once, by claim, size,
seed and code version: repeat an interrupted command to continue. `unspool lab list --quick` lists
quick runs, which `unspool lab list` leaves out. The exit status is 1 if an experiment failed; a
claim that is not reproduced is a result, not a failure.
"""
REPORT_EXAMPLES = """examples:
  unspool lab report --markdown lab.md
  unspool lab report --json > lab.json
  unspool lab report --from lab.json --markdown lab.md

The figures of --markdown are written to img/lab beside it. --json prints all measurements, from
which --from makes pages on another machine, and `unspool serve --lab` shows them.
"""


def _add_result_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds",
        type=natural,
        nargs="+",
        default=list(SEEDS),
        metavar="N",
        help="measure once per seed (default: 1 2 3; with --quick 1)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="seconds instead of minutes; too small for a verdict"
    )
    parser.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="folder of the results (default: in the user's cache)"
    )


def chosen_seeds(args: argparse.Namespace) -> list[int]:
    """The given seeds, each once."""
    if args.quick and list(args.seeds) == list(SEEDS):
        return [1]
    return list(dict.fromkeys(args.seeds))


def chosen_claims(names: Sequence[str], everything: bool, claims: Sequence[Claim]) -> list[Claim]:
    """The named claims, in the order of `claims`."""
    if everything == bool(names):
        raise ValueError("name the claims to run, or give --all; `unspool lab list` shows them")
    known = [claim.name for claim in claims]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown claim {name!r}: {suggest(name.replace('-', '_'), known)}")
    return [claim for claim in claims if everything or claim.name in names]


def stored_findings(
    args: argparse.Namespace, claims: Sequence[Claim], warn: Callable[[str], None] = print_message
) -> list[Finding]:
    """The results that were measured so far."""
    from unspool.lab.results import findings, results_folder

    return findings(
        claims, chosen_seeds(args), folder=results_folder(args.folder), quick=args.quick, warn=warn
    )


# ---- list


@command(LIST_EXAMPLES, _add_result_options, json="one JSON object per claim")
def list_claims(args: argparse.Namespace) -> Result:
    """List the claims and their verdicts."""
    from unspool.lab.claims import CLAIMS

    findings = stored_findings(args, CLAIMS)
    lines = (
        f"{finding.claim.name:22} {finding.verdict:{22 if args.quick else 15}} {finding.claim.statement}"
        for finding in findings
    )
    return Result(map(_listed, findings), lines)


def _listed(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    return {
        "name": claim.name,
        "statement": claim.statement,
        "source": claim.source,
        "measured": claim.measured,
        "criterion": list(claim.criterion),
        "verdict": finding.verdict,
        "seeds": [result.seed for result in finding.results],
    }


# ---- run


@command(
    RUN_EXAMPLES,
    option("names", metavar="CLAIM", nargs="*", help="names of claims; see `unspool lab list`"),
    option("--all", action="store_true", help="run every claim"),
    _add_result_options,
    option("--again", action="store_true", help="measure again what was measured before"),
    json="one JSON object per claim, with all numbers",
)
def run_claims(args: argparse.Namespace) -> int:
    """Measure claims and print their verdicts."""
    from unspool.lab.claims import CLAIMS
    from unspool.lab.results import results_folder
    from unspool.lab.running import run as measure

    claims, seeds = chosen_claims(args.names, args.all, CLAIMS), chosen_seeds(args)
    places = {claim.name: place for place, claim in enumerate(claims)}
    failures: list[str] = []
    with progress_bar(len(claims) * len(seeds), "") as bar:

        def progress(claim: Claim, seed: int, share: float) -> None:
            done = places[claim.name] * len(seeds) + seeds.index(seed) + share
            bar.update(done, description=f"{claim.name}, seed {seed}")

        for claim, seed, error in measure(
            claims,
            seeds,
            folder=results_folder(args.folder),
            quick=args.quick,
            again=args.again,
            progress=progress,
            warn=print_message,
        ):
            if error is not None:
                if args.debug:
                    traceback.print_exception(error)
                failures.append(f"{claim.name}, seed {seed}: {type(error).__name__}: {error}")
            if seed == seeds[-1]:
                _print_finding(args, claim)
    for failure in failures:
        print_message(f"failed: {failure}")
    return 1 if failures else 0


def _print_finding(args: argparse.Namespace, claim: Claim) -> None:
    from unspool.lab.claim import silent

    (finding,) = stored_findings(args, [claim], silent)
    if args.json:
        print_json(finding.record())
        return
    print(f"{claim.name}: {finding.verdict}\n  {claim.statement}", flush=True)
    for words, held, seeds in finding.parts:
        print(f"  {held} of {seeds} seeds: {words}")
    for name, spread in finding.spreads.items():
        print(f"    {name}: {spread}", flush=True)


# ---- report


@command(
    REPORT_EXAMPLES,
    option("--markdown", type=Path, metavar="FILE", help="write the report as Markdown"),
    option(
        "--from", type=Path, dest="file", metavar="FILE", help="report the measurements that --json wrote"
    ),
    _add_result_options,
    json="all measurements as one JSON object",
)
def report_claims(args: argparse.Namespace) -> int:
    """Write a report of all claims: verdicts, numbers, figures."""
    if not (args.markdown or args.json):
        raise ValueError("no output: give --markdown FILE or --json")
    if args.markdown:
        check_output(args.markdown)

    from unspool.lab.claims import CLAIMS
    from unspool.lab.report import markdown_page, write_figures
    from unspool.lab.results import findings_of_file

    with reserve_file(args.markdown):
        findings = findings_of_file(args.file, CLAIMS) if args.file else stored_findings(args, CLAIMS)
        if missing := [finding.claim.name for finding in findings if not finding.results]:
            print_message(f"not measured yet: {', '.join(missing)}; run: unspool lab run --all")
        if args.markdown:
            write_figures(findings, args.markdown)
            args.markdown.write_text(markdown_page(findings), encoding="utf-8")
            print_message(f"wrote {args.markdown}")
    if args.json:
        # One claim per line, for readable diffs.
        claims = ",\n".join(
            escape_json(json.dumps(finding.record(), ensure_ascii=False)) for finding in findings
        )
        print(f'{{"claims": [\n{claims}\n]}}')
    return 0


COMMAND = CommandGroup(
    "Measure the claims of the documentation: experiments, verdicts, a report.",
    {"list": list_claims, "run": run_claims, "report": report_claims},
)
