"""`unspool compile`: compile now, and keep on disk, what would be compiled when it is first used."""

from __future__ import annotations

import argparse
from functools import partial

from unspool.cli.processes import cores, side_by_side
from unspool.engine import compiler_obstacle

SUMMARY = "Compile the decoding steps ahead of their first use."
EXAMPLES = """examples:
  unspool compile

The steps of models, the products of every format of weights and the drawing of tokens are compiled for this
processor and kept on disk, as they would be when first used, on as many cores as there are: a quarter of a
minute on two, half a minute on one, once. Worth doing when an image or a machine is set up.
"""
WORDS = 5000
"""Enough for tokens to be drawn as they are from a large vocabulary."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Nothing but what every verb takes."""


def transformers() -> None:
    """The step of Transformers, and the copying of what rows share."""
    from unspool import Beam, Greedy, generate
    from unspool.models.transformer_lm import TransformerConfig

    model = TransformerConfig(vocab_size=WORDS, layers=1, width=16, heads=2, inner_width=16).build()
    for search in (Greedy(), Beam(2)):
        generate(model, [[1, 2, 3]] * 2, search, max_new_tokens=2)


def recurrent_models() -> None:
    """The step of recurrent models, the drawing of tokens and the ranking of beams."""
    from unspool import Beam, Greedy, Sample, TopP, generate
    from unspool.models.rnn_lm import RNNConfig

    model = RNNConfig(vocab_size=WORDS, width=16, layers=1).build()
    for search in (Greedy(), Beam(2), Sample(TopP(0.9))):
        generate(model, [[1, 2, 3]] * 2, search, max_new_tokens=2)


def formats(first: int, every: int) -> None:
    """The products with every so manieth format of weights."""
    from unspool.engine.packed_matmul import MADE, compiled_product as compiled
    from unspool.lazy import gc_paused as uncollected

    with uncollected():
        for kind in list(MADE)[first::every]:
            compiled(kind)


PARTS = (transformers, recurrent_models, partial(formats, 0, 2), partial(formats, 1, 2))
"""Independent of each other; the one that takes longest comes first."""


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    """Decode a few tokens with models of every kind, and with every format of weights."""
    missing = compiler_obstacle()
    if missing is not None:
        raise ValueError(f"nothing can be compiled: {missing}")
    processes = min(cores(), len(PARTS))
    if processes == 1:
        for part in PARTS:
            part()
        return 0
    side_by_side(PARTS, processes)
    return 0
