"""`unspool diagnose picture`: one next-token distribution, and what each sampler keeps of it."""

from __future__ import annotations

import argparse
from pathlib import Path

from unspool.cli.decoders import add_several_decoders_option
from unspool.cli.models import load_speaker
from unspool.cli.output import reserved, tell
from unspool.cli.parser import add_running_options, positive

SUMMARY = "Draw the most probable tokens after a prompt, and which of them each sampler keeps."
EXAMPLES = """examples:
  unspool diagnose picture smollm2 "The best thing about summer is" -o ranks.svg
  unspool diagnose picture smollm2 "Once upon a" --decoder "Sample(MinP(0.1))" --top 30 -o ranks.png

A decoder is a Sample with truncations, or with BasisAware, which tests the tokens one by one. Where none is
given, those of the selection that cannot work on the model are left out, and it is said why.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose picture` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    parser.add_argument("prompt", metavar="PROMPT", help="what stands before the token to look at")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="PATH", help=".svg, .png or .pdf")
    add_running_options(parser)
    parser.add_argument("--top", type=positive, default=60, metavar="N", help="tokens shown (default: 60)")
    add_several_decoders_option(parser)


def run(args: argparse.Namespace) -> int:
    """Look, then draw."""
    import unspool as us  # only now: the command line itself must not wait for torch
    from unspool.diagnose.ranked_tokens import DEFAULT_RULES, rank_tokens
    from unspool.plots.canvas import figure_path
    from unspool.plots.figures import draw_ranks

    specs = args.decoder or list(DEFAULT_RULES)
    rules = {}
    for spec in specs:
        rule = us.parse(spec)
        if not isinstance(rule, us.Sample):
            raise ValueError(f"{spec}: only a Sample keeps and cuts tokens; write one, as Sample(TopP(0.9))")
        rules[spec] = rule
    figure_path(args.output)
    with reserved(args.output):
        model = load_speaker(args)
        told = None if args.decoder else _left_out
        picture = rank_tokens(
            model, args.prompt, list(rules.values()), list(rules), top=args.top, on_error=told
        )
        draw_ranks(picture, args.output)
    tell(f"wrote {args.output}")
    return 0


def _left_out(spec: str, error: ValueError) -> None:
    """Of a rule of the selection, which nobody has asked for."""
    tell(f"{spec} is left out: {error}")
