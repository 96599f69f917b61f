"""`unspool compile`: compile now, and keep on disk, what would be compiled when it is first used."""

from __future__ import annotations

import argparse
from functools import partial

from unspool.cli.processes import cores, side_by_side
from unspool.engine import compiler_obstacle

SUMMARY = "Compile the decoding steps ahead of their first use."
EXAMPLES = """examples:
  unspool compile

Compiles the Transformer step, the matrix products of every weight format and the sampler for this processor
and keeps them on disk, using all cores: a quarter of a minute on two. Without this command they are compiled
when first used. Run it when you set up a machine or build an image.
"""
VOCAB_SIZE = 5000
"""Enough for the compiled sampler to be used."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Nothing but what every verb takes."""


def transformer_steps() -> None:
    """Compile the Transformer step, the KV cache's block copies, best tokens and the ranking of beams."""
    from unspool import Beam, Greedy, generate
    from unspool.models.transformer_lm import TransformerConfig

    model = TransformerConfig(vocab_size=VOCAB_SIZE, layers=1, width=16, heads=2, inner_width=16).build()
    for decoder in (Greedy(), Beam(2)):
        generate(model, [[1, 2, 3]] * 2, decoder, max_new_tokens=2)


def token_selection() -> None:
    """Compile the sampler and log_softmax."""
    from unspool import Sample, TopP, generate
    from unspool.models.rnn_lm import RNNConfig

    model = RNNConfig(vocab_size=VOCAB_SIZE, width=16, layers=1).build()
    generate(model, [[1, 2, 3]] * 2, Sample(TopP(0.9)), max_new_tokens=2)


def formats(first: int, every: int) -> None:
    """The products with every so manieth format of weights."""
    from unspool.engine.packed_matmul import MADE, compiled_product as compiled
    from unspool.lazy import gc_paused as uncollected

    with uncollected():
        for kind in list(MADE)[first::every]:
            compiled(kind)


PARTS = (transformer_steps, token_selection, partial(formats, 0, 2), partial(formats, 1, 2))
"""Independent of each other; the one that takes longest comes first."""


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    """Compile every kernel."""
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
