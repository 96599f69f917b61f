"""`unspool diagnose loops`: how often texts end in a loop, under each decoder."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from unspool.cli.decoders import add_several_decoders_option, name_decoders
from unspool.cli.diagnose.texts import add_gold_options, layout_of_args
from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import add_running_options, positive

SUMMARY = "Count the texts that go round in circles, decoder by decoder."
EXAMPLES = """examples:
  unspool diagnose loops smollm2 --text prompts.txt
  unspool diagnose loops smollm2 --text articles.jsonl --texts 20
  unspool diagnose loops runs/language --decoder "Greedy()" --decoder "Sample(TopP(0.9))" -o loops.svg --json

Each line is continued: a {"prompt": "…"} or {"messages": […]} whole, a text from its first --prompt tokens. A
run without --text takes what it was validated on. A text loops if its last tokens are a phrase three times
over; "≈ loops" are texts most of whose last 96 words repeat, exactly or nearly (other numbers, other case,
some other words). The figure shows log p by turn: it rises where a loop feeds itself.
"""
DECODERS = ("Greedy()", "Beam(4)", "Sample(Temperature(0.5))", "Sample(TopP(0.9))", "Sample()")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose loops` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    add_running_options(parser)
    add_gold_options(parser, texts=20)
    add_several_decoders_option(parser)
    parser.add_argument(
        "--max-new-tokens", type=positive, default=128, metavar="N", help="of a text (default: 128)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw them: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Continue, count, tell."""
    named_decoders = name_decoders(args.decoder, None, DECODERS)

    import unspool as us
    from unspool.diagnose.evaluation_texts import find_prompts
    from unspool.diagnose.text_loops import loop_rates
    from unspool.plots.canvas import figure_path
    from unspool.plots.figures import draw_loops

    decoders = {name: us.parse(spec) for name, spec in named_decoders.items()}
    if args.output:
        figure_path(args.output)
    with reserved(args.output):
        model = load_speaker(args)
        if args.text:  # an unreadable file must fail before the work
            args.text.open("rb").close()
        gold = find_prompts(
            model,
            Path(args.model),
            args.text,
            args.texts,
            args.prompt,
            args.prompt + 8,
            layout_of_args(args),
            seed=args.seed,
            warn=tell,
        )
        prompts = [prompt for prompt, _ in gold.pairs]
        found = loop_rates(model, prompts, decoders, max_new_tokens=args.max_new_tokens, seed=args.seed)
        if args.output:
            draw_loops(found, args.output)
    if args.json:
        rows = [{**asdict(it), "rate": it.rate} for it in found.decoders]
        print(json_line({"of": gold.source, "verdict": found.verdict, "decoders": rows}))
    else:
        print(f"texts after the beginnings of {gold.source}, up to {found.tokens} tokens")
        print_rows(
            ["decoder", "loops", "of", "rate", "≈ loops", "rep-4", "periods"],
            [
                [
                    it.decoder,
                    str(len(it.periods)),
                    str(it.texts),
                    f"{it.rate:.0%}",
                    str(it.approximate),
                    f"{it.rep_4:.3f}",
                    " ".join(map(str, sorted(it.periods)[:8])) + " …" * (len(it.periods) > 8),
                ]
                for it in found.decoders
            ],
        )
        print(found.verdict)
    if args.output:
        tell(f"wrote {args.output}")
    return 0
