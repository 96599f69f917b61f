"""`unspool diagnose attention`: where a model looks, token by token."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.models import load_speaker
from unspool.cli.output import json_line, print_rows, reserved, tell
from unspool.cli.parser import add_running_options, natural

if TYPE_CHECKING:
    from unspool.diagnose.text_attention import AttentionMap

SUMMARY = "Draw where a model looks: every head of a language model, or an answer's attention to its source."
EXAMPLES = """examples:
  unspool diagnose attention smollm2 "The keeper of the old lighthouse climbed the stairs." -o heads.png
  unspool diagnose attention smollm2 "The keeper climbed the stairs." --layer 3 --head 1 -o head.svg --json
  unspool diagnose attention dates "1921-05-05" --source "the 5th of May, 1921" -o alignment.svg

Layers and heads count from 0. Without --layer and --head all of them are drawn, small. A head looks at a
place where it gives it half of its attention or more, on average.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose attention` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    parser.add_argument("text", metavar="TEXT", help="what is read; of an encoder–decoder, its answer")
    add_running_options(parser)
    parser.add_argument("--source", metavar="TEXT", help="what is answered, of an encoder–decoder")
    parser.add_argument("--layer", type=natural, metavar="N", help="draw the heads of this layer only")
    parser.add_argument("--head", type=natural, metavar="N", help="draw this head only")
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw them: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object, the weights included")


def run(args: argparse.Namespace) -> int:
    """Read, look, tell."""
    from unspool.diagnose.text_attention import attention_maps, draw_attention
    from unspool.plots.canvas import figure_path

    if args.output:
        figure_path(args.output)
    with reserved(args.output):
        found = attention_maps(load_speaker(args), args.text, args.source)
        if args.output:
            draw_attention(found, args.output, layer=args.layer, head=args.head)
    if args.json:
        about = {"verdict": found.verdict, "tokens": found.tokens, "sources": found.sources}
        print(json_line({**about, "maps": [_record(it) for it in found.maps]}))
    else:
        rows = [[_name(it), it.looks_at, f"{it.share:.0%}"] for it in found.maps]
        print_rows(["layer.head", "looks at", "share"], rows)
        print(found.verdict)
    if args.output:
        tell(f"wrote {args.output}")
    return 0


def _name(it: AttentionMap) -> str:
    return "to the source" if it.layer is None else f"{it.layer}.{it.head}"


def _record(it: AttentionMap) -> dict[str, Any]:
    weights = [[round(float(value), 6) for value in row] for row in it.weights_TS]
    return {
        "layer": it.layer,
        "head": it.head,
        "looks_at": it.looks_at,
        "share": it.share,
        "weights": weights,
    }
