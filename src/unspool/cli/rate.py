"""`unspool rate`: human evaluation. Prepare a blinded set, rate it in the terminal or as CSV, and report."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unspool.cli.output import Result, Table, check_output
from unspool.cli.parser import (
    CommandGroup,
    add_seed_option,
    command,
    flag,
    number,
    option,
    output_option,
    path_option,
)
from unspool.errors import replace_control_characters

if TYPE_CHECKING:
    from unspool.evaluate.rating import RatingItem, RatingReport, RatingSet

PREPARE_EXAMPLES = """examples:
  unspool rate prepare ours.jsonl theirs.jsonl --output ratings --seed 1
  unspool rate prepare softmax=a.txt kerbs=b.txt --prompts questions.txt --scale preference --output ratings

Outputs are JSON lines with "prompt" and "text", as `unspool generate --json` writes them, or plain
lines together with --prompts. Only RATINGS-key.json, beside the folder, names the systems: raters should not
open it.
"""
ANSWER_EXAMPLES = """examples:
  unspool rate answer ratings --rater anna

Type a choice and Enter. u: undo the last answer, s: skip the item for now, ?: show the guide, q:
quit. Every answer is saved at once, and the next session continues where this one ended.
"""
REPORT_EXAMPLES = """examples:
  unspool rate report ratings
  unspool rate report ratings --json --figure ratings.svg

The report names the systems. Intervals are 95 % bootstrap intervals over items. α is
Krippendorff's: 1 is full agreement, 0 chance; above 0.8 is called reliable, from 0.667 tentative.
"""
EXPORT_EXAMPLES = """examples:
  unspool rate export ratings answers.csv
  unspool rate export ratings anna.csv --rater anna
  unspool rate export ratings unblinded.csv --systems
"""
IMPORT_EXAMPLES = """examples:
  unspool rate import ratings anna.csv
  unspool rate import ratings sheet.csv --rater anna

The sheet needs the columns rater, item and choice, separated by commas, semicolons or tabs.
"""
FOLDER = option("folder", type=Path, metavar="FOLDER", help="the set of `unspool rate prepare`")


# ---- prepare


@command(
    PREPARE_EXAMPLES,
    option("outputs", nargs="+", metavar="[NAME=]FILE", help="the outputs of a system"),
    output_option("folder of the new set", "FOLDER", required=True),
    path_option("--prompts", "the prompts, line by line"),
    option(
        "--scale",
        choices=("score", "preference"),
        default="score",
        help="score: 0, 1 or 2 for one text; preference: the better of two (default: %(default)s)",
    ),
    number("--max-prompts", None, "use N randomly drawn prompts (default: all)"),
    add_seed_option,
)
def prepare_set(args: argparse.Namespace) -> Result:
    """Make a blinded set from the outputs of systems."""
    from unspool.evaluate.rating import prepare
    from unspool.evaluate.text_files import read_systems, shared_prompts

    systems = read_systems(args.outputs)
    ratings = prepare(
        args.output,
        {system.name: system.texts for system in systems},
        shared_prompts(systems, args.prompts),
        scale=args.scale,
        seed=args.seed,
        max_prompts=args.max_prompts,
    )
    prompts = len({origin.prompt for origin in ratings.key().items.values()})
    counts = {"items": len(ratings.items), "prompts": prompts, "systems": len(systems)}
    line = (
        f"{len(ratings.items)} items of {prompts} prompts and {len(systems)} systems in {args.output}; "
        f"next: unspool rate answer {args.output} --rater YOU"
    )
    return Result([{"folder": str(args.output), **counts}], [line])


# ---- answer


@command(
    ANSWER_EXAMPLES,
    FOLDER,
    option("--rater", metavar="NAME", help="name of the rater (default: your user name)"),
    json=None,
)
def answer_items(args: argparse.Namespace) -> int:
    """Rate the items of a set in the terminal."""
    from unspool.evaluate.rating import RatingSet

    rater = getpass.getuser() if args.rater is None else args.rater
    _rate_items(RatingSet.load(args.folder), rater, sys.stdin)
    return 0


def _rate_items(ratings: RatingSet, rater: str, lines: TextIO) -> None:
    order = ratings.order(rater)
    answered = {answer.item for answer in ratings.answers() if answer.rater == rater.strip()}
    remaining = [item for item in order if item.id not in answered]
    history: list[RatingItem] = []
    if not remaining:
        print(f"{rater} has answered all {len(order)} items")
        return
    print(f"{replace_control_characters(ratings.scale.guide)}\n")
    while remaining:
        item = remaining[0]
        _print_item(ratings, item, len(order) - len(remaining) + 1)
        for choice in _choices(lines):
            if choice == "q":
                return
            if choice == "?":
                print(ratings.scale.guide)
            elif choice == "s":
                remaining.append(remaining.pop(0))
                break
            elif choice == "u" and history:
                remaining.insert(0, history.pop())
                break
            elif choice in ratings.scale.choices:
                ratings.record(rater, item.id, choice)
                history.append(remaining.pop(0))
                break
            else:
                known = ", ".join(ratings.scale.choices)
                message = f"{replace_control_characters(choice)!r} is not one of {known}, u, s, ?, q"
                if not lines.isatty():  # a script must not continue after a mistake
                    raise ValueError(message)
                print(message)
        else:
            print()
            return
    print(f"\nall {len(order)} items are answered: thank you")


def _print_item(ratings: RatingSet, item: RatingItem, number: int) -> None:
    scale = ratings.scale
    print(f"── {number} of {len(ratings.items)} " + "─" * 40)
    print(f"{replace_control_characters(item.prompt)}\n")
    for mark, text in zip("ab" if len(item.texts) > 1 else " ", item.texts, strict=True):
        shown = replace_control_characters(text) if text.strip() else "(empty)"
        print(f"{mark} │ " + shown.replace("\n", f"\n{mark} │ ") + "\n")
    print(f"{scale.question}  " + "   ".join(f"{key}: {words}" for key, words in scale.choices.items()))


def _choices(lines: TextIO) -> Iterator[str]:
    while True:
        print("> ", end="", flush=True)
        line = lines.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()


# ---- report


@command(
    REPORT_EXAMPLES, FOLDER, number("--samples", 1000, "bootstrap samples"), add_seed_option, figure=True
)
def report_ratings(args: argparse.Namespace) -> Result:
    """Report mean scores or strengths with intervals, and the raters' agreement."""
    from unspool.evaluate.rating import RatingSet, report
    from unspool.plots.figures import draw_intervals

    result = report(RatingSet.load(args.folder), samples=args.samples, seed=args.seed)
    measure = "mean score" if result.scale == "score" else "strength"
    pairs = [{"first": a, "second": b, **asdict(test)} for (a, b), test in result.pairs.items()]
    return Result(
        [{**asdict(result), "pairs": pairs}],
        _report_lines(result, measure),
        partial(draw_intervals, {measure: {rating.system: rating.value for rating in result.systems}}),
    )


def _report_lines(report: RatingReport, measure: str) -> Iterator[str | Table]:
    raters = ", ".join(f"{name} ({count})" for name, count in report.raters.items())
    yield f"{report.answers} answers to {report.items} items by {raters}\n"
    names = list(report.systems[0].counts)
    rows = []
    for system in report.systems:
        counts = (str(system.counts[name]) for name in names)
        interval = f"{system.value.low:.3f} … {system.value.high:.3f}"
        rows.append([system.system, str(system.answers), *counts, f"{system.value.value:.3f}", interval])
    yield Table(["system", "answers", *names, measure, "95 % interval"], rows)
    alphas = (
        f"{level} {alpha.value:.3f} ({alpha.low:.3f} … {alpha.high:.3f})"
        for level, alpha in report.alphas.items()
    )
    if report.alphas:
        yield "agreement, Krippendorff's α: " + ", ".join(alphas)
    else:
        yield "agreement is unknown: every item has at most one rating, or all ratings are equal"
    for (a, b), test in report.pairs.items():
        yield (
            f"{a} − {b}: {test.difference:+.3f}, p = {test.p:.3f} "
            "(approximate randomisation over prompts where both were rated)"
        )


# ---- export and import


@command(
    EXPORT_EXAMPLES,
    FOLDER,
    option("sheet", type=Path, metavar="CSV", help="the file to write"),
    option("--rater", metavar="NAME", help="write every item, for this rater to fill in"),
    flag("--systems", "include the names of the systems (unblinded)"),
)
def export_sheet(args: argparse.Namespace) -> Result:
    """Write all answers, or a sheet for one rater, as CSV."""
    from unspool.evaluate.rating import RatingSet, write_sheet

    check_output(args.sheet)
    rows = write_sheet(RatingSet.load(args.folder), args.sheet, rater=args.rater, systems=args.systems)
    return Result([{"file": str(args.sheet), "rows": rows}], [f"{rows} rows in {args.sheet}"])


@command(
    IMPORT_EXAMPLES,
    FOLDER,
    option("sheet", type=Path, metavar="CSV", help="the file to read"),
    option("--rater", metavar="NAME", help="the rater, if the sheet does not name one"),
)
def import_sheet(args: argparse.Namespace) -> Result:
    """Read the answers of a CSV sheet; a wrong line refuses the whole sheet."""
    from unspool.evaluate.rating import RatingSet, read_sheet

    new = read_sheet(RatingSet.load(args.folder), args.sheet, rater=args.rater)
    return Result([{"new_answers": new}], [f"{new} new answers"])


COMMAND = CommandGroup(
    "Let people rate texts: prepare a blinded set, answer it, report the results.",
    {
        "prepare": prepare_set,
        "answer": answer_items,
        "report": report_ratings,
        "export": export_sheet,
        "import": import_sheet,
    },
)
