"""`unspool compile`: compile now, and keep on disk, what would be compiled when it is first used."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

SUMMARY = "Compile the decoding steps ahead of their first use."
EXAMPLES = """examples:
  unspool compile

The steps of models, the products of every format of weights and the drawing of tokens are compiled for this
processor and kept on disk, as they would be when first used: about half a minute, once. Worth doing when an
image or a machine is set up.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Nothing but what every verb takes."""


def run(args: argparse.Namespace) -> int:  # noqa: ARG001
    """Decode a few tokens with models of every kind, and with every format of weights."""
    if find_spec("numba") is None:
        raise ValueError("there is nothing to compile without numba: pip install 'unspool[fast]'")
    from unspool import Beam, Greedy, Sample, TopP, generate
    from unspool.models.rnn_lm import RNNConfig
    from unspool.models.transformer_lm import TransformerConfig
    from unspool.nn.compiled.products.packed_product import MADE, compiled

    words = 5000  # enough for tokens to be drawn as they are from a large vocabulary
    transformer = TransformerConfig(vocab_size=words, layers=1, width=16, heads=2, inner_width=16).build()
    recurrent = RNNConfig(vocab_size=words, width=16, layers=1).build()
    for model in (transformer, recurrent):
        for search in (Greedy(), Beam(2), Sample(TopP(0.9))):
            generate(model, [[1, 2, 3]] * 2, search, max_new_tokens=2)
    for kind in MADE:
        compiled(kind)
    return 0
