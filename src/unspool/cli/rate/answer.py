"""`unspool rate answer`: go through a set in the terminal; every answer is on the disk before the next."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from unspool.errors import replace_control_characters

if TYPE_CHECKING:
    from unspool.evaluate.rating import RatingItem, RatingSet

SUMMARY = "Answer what a set asks, in the terminal."
EXAMPLES = """examples:
  unspool rate answer ratings --rater anna

Type a choice and Enter; u takes the last answer up again, s leaves an item for later, ? shows the guide,
q ends. Ending, or being killed, costs nothing: what was answered is kept, and the next session goes on.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool rate answer` takes."""
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the set")
    parser.add_argument("--rater", metavar="NAME", help="who answers (default: your user name)")


def run(args: argparse.Namespace) -> int:
    """Ask until all is answered, or nobody answers any more."""
    from unspool.evaluate.rating import RatingSet

    rater = getpass.getuser() if args.rater is None else args.rater
    _session(RatingSet.load(args.folder), rater, sys.stdin)
    return 0


def _session(ratings: RatingSet, rater: str, lines: TextIO) -> None:
    order = ratings.order(rater)
    given = {it.item for it in ratings.answers() if it.rater == rater.strip()}
    left = [it for it in order if it.id not in given]
    before: list[RatingItem] = []
    if not left:
        print(f"{rater} has answered all {len(order)} items")
        return
    print(f"{replace_control_characters(ratings.scale.guide)}\n")
    while left:
        item = left[0]
        _show(ratings, item, len(order) - len(left) + 1)
        for said in _answers(lines):
            if said == "q":
                return
            if said == "?":
                print(ratings.scale.guide)
            elif said == "s":
                left.append(left.pop(0))
                break
            elif said == "u" and before:
                left.insert(0, before.pop())
                break
            elif said in ratings.scale.choices:
                ratings.record(rater, item.id, said)
                before.append(left.pop(0))
                break
            elif lines.isatty():
                print(
                    f"{replace_control_characters(said)!r} is none of "
                    f"{', '.join(ratings.scale.choices)}, u, s, ?, q"
                )
            else:  # a script must not go on as if it had been understood
                raise ValueError(f"{said!r} is none of {', '.join(ratings.scale.choices)}, u, s, ?, q")
        else:
            print()
            return
    print(f"\nall {len(order)} items are answered: thank you")


def _show(ratings: RatingSet, item: RatingItem, number: int) -> None:
    scale = ratings.scale
    print(f"── {number} of {len(ratings.items)} " + "─" * 40)
    print(f"{replace_control_characters(item.prompt)}\n")
    for mark, text in zip("ab" if len(item.texts) > 1 else " ", item.texts, strict=True):
        said = replace_control_characters(text) if text.strip() else "(nothing)"
        print(f"{mark} │ " + said.replace("\n", f"\n{mark} │ ") + "\n")
    print(f"{scale.question}  " + "   ".join(f"{key}: {words}" for key, words in scale.choices.items()))


def _answers(lines: TextIO) -> Iterator[str]:
    """What is typed, until there is an end to it."""
    while True:
        print("> ", end="", flush=True)
        line = lines.readline()
        if not line:
            return
        if line.strip():
            yield line.strip()
