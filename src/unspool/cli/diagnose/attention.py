"""`unspool diagnose attention | heads`: attention maps, and heads that follow the arcs of a treebank."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool.cli.models import load, load_model, load_options
from unspool.cli.output import Result, Table
from unspool.cli.parser import add_model_argument, command, number, option

if TYPE_CHECKING:
    from unspool.diagnose.text_attention import AttentionMap

ATTENTION_EXAMPLES = """examples:
  unspool diagnose attention smollm2 "The keeper of the old lighthouse climbed the stairs." --figure heads.png
  unspool diagnose attention smollm2 "The keeper climbed the stairs." --layer 3 --figure layer.svg --json
  unspool diagnose attention dates "1921-05-05" --source "the 5th of May, 1921" --figure alignment.svg

Layers and heads are counted from 0. Without --layer and --head the figure shows all of them, small.
The column "looks at" names the position that gets at least half of a head's attention on average.
"""
HEADS_EXAMPLES = """examples:
  unspool diagnose heads smollm2 en_ewt-ud-dev.conllu --sentences 200
  unspool diagnose heads runs/ewt en_ewt-ud-dev.conllu --labels nsubj obj --json
  unspool diagnose heads smollm2 en_ewt-ud-dev.conllu --figure heads.svg

For each dependency label, prints the head whose strongest attention from the later word of an arc
most often is on the earlier word, and the best fixed offset ("the previous word") for comparison.
Attention is summed over the subword tokens of the word attended to and averaged over those of the
other. Layers and heads are counted from 0.
"""
HEAD_COLUMNS = {
    "label": "{it.label}",
    "arcs": "{it.arcs}",
    "best head": "{it.layer}.{it.head}",
    "agrees": "{it.agreement:.1%}",
    "best offset": "-{it.offset}",
    "offset agrees": "{it.offset_agreement:.1%}",
}


@command(
    ATTENTION_EXAMPLES,
    add_model_argument,
    option("text", metavar="TEXT", help="text to read; for an encoder–decoder, the target"),
    option("--source", metavar="TEXT", help="source text, for an encoder–decoder"),
    number("--layer", None, "draw only the heads of this layer", minimum=0),
    number("--head", None, "draw only this head", minimum=0),
    figure=True,
    json="one JSON object with all attention weights",
)
def attention(args: argparse.Namespace) -> Result:
    """Draw the attention of a language model's heads, or the alignment of an encoder–decoder."""
    from unspool.diagnose.text_attention import attention_maps
    from unspool.plots.figures import draw_attention

    result = attention_maps(load_model(args), args.text, args.source)
    texts = {"verdict": result.verdict, "tokens": result.tokens, "sources": result.sources}
    names = ["to the source" if head.layer is None else f"{head.layer}.{head.head}" for head in result.maps]
    rows = [[name, it.looks_at, f"{it.share:.0%}"] for name, it in zip(names, result.maps, strict=True)]
    return Result(
        [{**texts, "maps": [_map_record(head) for head in result.maps]}],
        [Table(["layer.head", "looks at", "share"], rows), result.verdict],
        partial(draw_attention, result, layer=args.layer, head=args.head),
    )


def _map_record(it: AttentionMap) -> dict[str, Any]:
    weights = [[round(float(value), 6) for value in row] for row in it.weights_TS]
    position = {"layer": it.layer, "head": it.head}
    return {**position, "looks_at": it.looks_at, "share": it.share, "weights": weights}


@command(
    HEADS_EXAMPLES,
    add_model_argument,
    option("treebank", type=Path, metavar="TREEBANK", help="a CoNLL-U file"),
    option("--labels", nargs="+", metavar="LABEL", help="only these (default: all frequent labels)"),
    number("--sentences", None, "only the first N sentences (default: all)"),
    figure=True,
    json="one JSON object per label",
)
def heads(args: argparse.Namespace) -> Result:
    """Find the attention heads that follow the dependency arcs of a treebank."""
    from unspool.data.conllu import read_treebank

    sentences = read_treebank(args.treebank)[: args.sentences]
    from unspool.diagnose.dependency_agreement import agreements
    from unspool.plots.figures import draw_heads

    model = load(args.model, load_options(args))
    result = agreements(model, sentences, args.labels, min_arcs=max(5, len(sentences) // 10))
    if not result:
        raise ValueError("no label is frequent enough: use more --sentences, or give --labels")
    return Result(map(asdict, result), [Table.of(HEAD_COLUMNS, result)], partial(draw_heads, result))
