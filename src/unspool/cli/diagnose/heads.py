"""`unspool diagnose heads`: which heads of a Transformer look along the arcs of a treebank."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from unspool.cli.models import loading
from unspool.cli.output import json_line, reserved, tell
from unspool.cli.parser import add_running_options, positive

SUMMARY = "See which heads of a Transformer look along the arcs of a treebank, label by label."
EXAMPLES = """examples:
  unspool diagnose heads smollm2 en_ewt-ud-dev.conllu --sentences 200
  unspool diagnose heads runs/ewt en_ewt-ud-dev.conllu --labels nsubj obj --json
  unspool diagnose heads smollm2 en_ewt-ud-dev.conllu -o heads.svg

For each label of the treebank (CoNLL-U), the head that most often looks from the later of an arc's two words
most at the earlier one, beside the best fixed offset ("the word before"). Attention of sub-word tokens is
summed and averaged over words. Layers and heads are counted from 0.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Everything `unspool diagnose heads` takes."""
    parser.add_argument("model", metavar="MODEL", help="as for `unspool generate --model`")
    parser.add_argument("treebank", type=Path, metavar="TREEBANK", help="a file in the CoNLL-U format")
    add_running_options(parser)
    parser.add_argument("--labels", nargs="+", metavar="LABEL", help="(default: all that are frequent)")
    parser.add_argument(
        "--sentences", type=positive, metavar="N", help="only the first N of the treebank (default: all)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="PATH", help="draw it: .svg, .png or .pdf")
    parser.add_argument("--json", action="store_true", help="one JSON object for each label")


def run(args: argparse.Namespace) -> int:
    """Read the treebank, then the model; look; tell."""
    from unspool.data.conllu import read_treebank

    sentences = read_treebank(args.treebank)[: args.sentences]
    import unspool as us
    from unspool.diagnose.dependency_agreement import agreements
    from unspool.plots.canvas import figure_path

    if args.output:
        figure_path(args.output)
    with reserved(args.output):
        model = us.load(args.model, **loading(args))
        found = agreements(model, sentences, args.labels, least=max(5, len(sentences) // 10))
        if not found:
            raise ValueError("no label is frequent enough in so few sentences: give more, or name --labels")
        if args.output:
            from unspool.plots.figures import draw_heads

            draw_heads(found, args.output)
    if args.json:
        for it in found:
            print(json_line(asdict(it)))
    else:
        print("label          arcs   best head   finds   best offset   finds")
        for it in found:
            head = f"{it.layer}.{it.head}"
            print(
                f"{it.label:12} {it.arcs:6}   {head:>9}   {it.agreement:5.1%}   {-it.offset:11}   "
                f"{it.offset_agreement:5.1%}"
            )
    if args.output:
        tell(f"wrote {args.output}")
    return 0
