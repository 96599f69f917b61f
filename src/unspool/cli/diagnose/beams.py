"""`unspool diagnose beams`: what wider beams do to the length and the quality of texts."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from unspool.cli.diagnose.texts import add_gold_options, gold_texts
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import add_running_options, positive

SUMMARY = "See the beam curse: length and quality by the width of a beam."
EXAMPLES = """examples:
  unspool diagnose beams runs/dates --widths 1 4 16 64
  unspool diagnose beams dates --text pairs.jsonl --beam "Beam(1, length_penalty=GNMT(0.6))" -o beams.svg

F₁ is of the tokens of a text and of the right one; the ratio is of their lengths. An encoder–decoder
answers the sources of pairs, a language model goes on from the first --prompt tokens of each text.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose beams` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_gold_options(parser, texts=64)
    parser.add_argument(
        "--widths",
        type=positive,
        nargs="+",
        default=[1, 2, 4, 8, 16, 32],
        metavar="N",
        help="of the beam (default: 1 2 4 8 16 32)",
    )
    parser.add_argument(
        "--beam", default="Beam(1)", metavar="SPEC", help="what is made wider (default: Beam(1))"
    )
    parser.add_argument("--length", type=positive, default=32, metavar="N", help="right tokens (default: 32)")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Search at every width, compare, tell."""
    import unspool as us
    from unspool.diagnose.beam_search_curse import beam_widths
    from unspool.plots.canvas import figure_path
    from unspool.plots.figures import draw_widths

    beam = us.parse(args.beam)
    if not isinstance(beam, us.Beam):
        raise ValueError(f"--beam {args.beam} is no Beam: write one, as Beam(1, length_penalty=GNMT(0.6))")
    if args.output:
        figure_path(args.output)
    with reserved(args.output):
        model = load_speaker(args)
        gold = gold_texts(model, args, max_tokens=args.prompt + args.length)
        found = beam_widths(model, gold.pairs, args.widths, beam=beam)
        if args.output:
            draw_widths(found, args.output)
    if args.json:
        points = [asdict(it) for it in found.points]
        print(
            json_line({"of": gold.source, "verdict": found.verdict, "cursed": found.cursed, "points": points})
        )
    else:
        print(f"beams on {gold.source}, {len(gold.pairs)} texts")
        print_rows(
            ["width", "log p", "length", "ratio", "F₁", "empty", "ended"],
            [
                [
                    str(it.width),
                    f"{it.logp:.2f}",
                    f"{it.length:.1f}",
                    f"{it.ratio:.3f}",
                    f"{it.quality:.3f}",
                    f"{it.empty:.0%}",
                    f"{it.ended:.0%}",
                ]
                for it in found.points
            ],
        )
        print(found.verdict)
    if args.output:
        tell(f"wrote {args.output}")
    return 0
