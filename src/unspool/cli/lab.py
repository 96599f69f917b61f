"""`unspool lab`: list, measure and report the claims of the documentation."""

from __future__ import annotations

import argparse
import json
import math
import os
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool.cli.output import Result, check_output, print_json, print_message, progress_bar, reserve_file
from unspool.cli.parser import CommandGroup, command, flag, natural, option, path_option, positive
from unspool.config import suggest
from unspool.errors import escape_json

if TYPE_CHECKING:
    from unspool.lab.claim import Experiment
    from unspool.lab.results import Finding

LIST_EXAMPLES = """examples:
  unspool lab list
  unspool lab list --json
"""
RUN_EXAMPLES = """examples:
  unspool lab run greedy_trigram
  unspool lab run --all --jobs 2
  unspool lab run --stale --from docs/lab.json
  unspool lab run --all --quick

A claim has 10 seeds or more, of seconds each; the estimated time is shown before the run. Every
result is saved at once, with the registered plan and the code that it depends on: repeat an
interrupted command to continue. --stale measures only what another plan has measured, or other code
whose quick run gave other numbers. --from adds published results to those of this machine. --quick
takes three minutes in all and means nothing: it shows that everything runs. Claims about real models
need --data (see `unspool.lab.inputs`) and are skipped without it. The exit status is 1 if an
experiment or a check failed; a contradicted claim is a result.
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
        metavar="N",
        help="seeds (default: the number that each claim registered, from 101 on; with --quick 101)",
    )
    flag("--quick", "seconds instead of minutes; the numbers mean nothing")(parser)
    path_option("--folder", "folder of the results (default: in the user's cache)", "FOLDER")(parser)


def chosen_seeds(args: argparse.Namespace) -> list[int] | None:
    """The given seeds, each once, or None for those of each claim."""
    return list(dict.fromkeys(args.seeds)) if args.seeds else None


def chosen_claims(names: Sequence[str], everything: bool, claims: Sequence[Experiment]) -> list[Experiment]:
    """The named claims, in the order of `claims`."""
    if everything == bool(names):
        raise ValueError("name the claims to run, or give --all or --stale; `unspool lab list` shows them")
    known = [claim.name for claim in claims]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown claim {name!r}: {suggest(name.replace('-', '_'), known)}")
    return [claim for claim in claims if everything or claim.name in names]


def stored_findings(args: argparse.Namespace, claims: Sequence[Experiment]) -> list[Finding]:
    from unspool.lab.results import findings, results_folder

    return findings(claims, chosen_seeds(args), folder=results_folder(args.folder), quick=args.quick)


# ---- list


@command(LIST_EXAMPLES, _add_result_options, json="one JSON object per claim")
def list_claims(args: argparse.Namespace) -> Result:
    """List the claims and their verdicts."""
    from unspool.lab.claims import CLAIMS

    findings = stored_findings(args, CLAIMS)
    lines = (
        f"{each.claim.name:22} {each.verdict + ' (stale)' * each.is_stale:20} {each.claim.statement}"
        for each in findings
    )
    return Result(map(_listed, findings), lines)


def _listed(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    return {
        "name": claim.name,
        "plan": claim.plan(),
        "verdict": finding.verdict,
        "effect": finding.record()["effect"],
        "stale": finding.is_stale,
        "seeds": [result.seed for result in finding.results],
    }


# ---- run


@command(
    RUN_EXAMPLES,
    option("names", metavar="CLAIM", nargs="*", help="names of claims; see `unspool lab list`"),
    flag("--all", "run every claim"),
    flag("--stale", "run the claims whose results are stale"),
    option("--jobs", type=positive, default=1, metavar="N", help="number of processes (default: 1)"),
    path_option(
        "--data",
        "human texts and models for claims that need them (default: lab-data in the user's cache)",
        "FOLDER",
    ),
    path_option("--from", "results that `lab report --json` wrote", dest="file"),
    _add_result_options,
    json="one JSON object per claim, with all numbers",
)
def run_claims(args: argparse.Namespace) -> int:
    """Measure claims and print their verdicts."""
    from unspool.lab.claims import CLAIMS
    from unspool.lab.inputs import FOLDER, MissingInputError
    from unspool.lab.results import copy_results, results_folder
    from unspool.lab.running import estimated_seconds, pairs, run as measure

    claims = chosen_claims(args.names, args.all or args.stale, CLAIMS)
    folder, seeds = results_folder(args.folder), chosen_seeds(args)
    if args.data:
        os.environ[FOLDER] = str(args.data)  # processes of --jobs inherit it
    if args.file:
        copy_results(args.file, CLAIMS, folder)
    if args.stale:
        claims = [it.claim for it in stored_findings(args, claims) if it.is_stale]
        list(measure(claims, folder=folder, quick=True, jobs=args.jobs))
        claims = [it.claim for it in stored_findings(args, claims) if it.is_stale]
    todo = pairs(claims, seeds, args.quick)
    seconds = {(it.name, seed): estimated_seconds(folder, it, seed, args.quick) for it, seed in todo}
    left, shares = Counter(it.name for it, _ in todo), dict.fromkeys(seconds, 0.0)
    minutes = math.ceil(sum(seconds.values()) / 60 / args.jobs)
    print_message(f"{len(todo)} measurements, up to {minutes} min; known results are not repeated")
    failures: list[str] = []
    skipped: dict[str, str] = {}
    with progress_bar(round(sum(seconds.values())), "") as update:

        def progress(claim: Experiment, seed: int, share: float) -> None:
            shares[claim.name, seed] = share
            done = sum(seconds[key] * share for key, share in shares.items())
            update(completed=done, description=f"{claim.name}, seed {seed}; seconds")

        for claim, seed, error in measure(
            claims,
            seeds,
            folder=folder,
            quick=args.quick,
            jobs=args.jobs,
            progress=progress,
        ):
            if isinstance(error, MissingInputError):
                skipped[claim.name] = str(error)
                continue
            if error is not None:
                if args.debug:
                    traceback.print_exception(error)
                failures.append(f"{claim.name}, seed {seed}: {type(error).__name__}: {error}")
            left[claim.name] -= 1
            if not left[claim.name] and _print_finding(args, claim) == "fails":
                failures.append(f"{claim.name}: the check does not hold")
    for name, reason in skipped.items():
        print_message(f"{name} is skipped: {reason}")
    for failure in failures:
        print_message(f"failed: {failure}")
    return 1 if failures else 0


def _print_finding(args: argparse.Namespace, claim: Experiment) -> str:
    from unspool.lab.report import effect_line

    (finding,) = stored_findings(args, [claim])
    if args.json:
        print_json(finding.record())
        return finding.verdict
    print(f"{claim.name}: {finding.verdict}\n  {claim.statement}", flush=True)
    if finding.effect:
        print(f"  {effect_line(finding)}")
    for words, held, seeds in finding.parts:
        print(f"  {held} of {seeds} seeds: {words}")
    for name, spread in finding.spreads.items():
        print(f"    {name}: {spread}", flush=True)
    return finding.verdict


# ---- report


@command(
    REPORT_EXAMPLES,
    path_option("--markdown", "write the report as Markdown"),
    path_option("--from", "report the measurements that --json wrote", dest="file"),
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
        if stale := [finding.claim.name for finding in findings if finding.is_stale]:
            print_message(
                f"stale, because code or plan changed: {', '.join(stale)}; run: unspool lab run --stale"
            )
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
    "Test claims of the literature by small experiments, and report the verdicts.",
    {"list": list_claims, "run": run_claims, "report": report_claims},
)
