"""What compiled recurrent models are made of: parts by number, sizes, and the memory that they work on.

Weights stay where they are (`parts`): a row of the table for every layer, in each of its directions, and
behind them one for the model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# The parts of a layer in one direction, and those of the model that others have not
INPUT_GATES, STATE_GATES = 0, 1
QUERY, SCORE, READOUT, KEY, BEGIN = 3, 4, 5, 6, 7

CELLS = {"gru": 0, "lstm": 1}
LSTM = 1
CONTEXTS = {"last": 1, "mean": 2, "additive": 3, "bilinear": 4, "dot": 5}
NO_CONTEXT, LAST, MEAN, ADDITIVE = 0, 1, 2, 3


class RNNShape(NamedTuple):
    """Sizes and choices of a model, as numbers."""

    embed_width: int
    width: int
    """Of a layer, in one direction."""
    layers: int
    directions: int
    cell: int
    vocab_size: int
    context: int
    """What a decoder is told about its source, and an encoder has to say."""
    memory_width: int
    """Of what an encoder says about a token."""
    key_width: int
    logit_cap: float = 0.0
    """The head's scores are bent to stay below it; 0: they are not."""


class Texts(NamedTuple):
    """B texts that a pass reads, the longer ones first."""

    tokens: Any
    """(M): text after text, in any order."""
    starts: Any
    """(B): where each begins in tokens."""
    lengths: Any
    """(B)."""
    active: Any
    """(T): how many texts have a token number t."""


class State(NamedTuple):
    """What is remembered of N rows: (layers · directions, N, H) each."""

    h: Any
    c: Any
    """Empty where a cell has none."""


class Memory(NamedTuple):
    """What an encoder says about sources, and which of them rows look at."""

    vectors: Any
    """(tokens of all sources, E); one for each source where a context is fixed."""
    keys: Any
    """(tokens of all sources, A)."""
    begins: Any
    """(N): where the source of a row begins."""
    lengths: Any
    """(N): its tokens."""


class RNNWork(NamedTuple):
    """Room for what is between two phases."""

    x: Any
    """(rows or tokens, the widest input of a layer), twice: what one layer reads and says."""
    y: Any
    gates: Any
    recur: Any
    query: Any
    context: Any
    """(rows, E)."""


class RNNSaid(NamedTuple):
    """What comes out."""

    hidden: Any
    """(N, D): what the head reads."""
    logp: Any
    """(N, V), or empty."""
    log_norm: Any
    looked: Any
    """(N, S): α of every row; S is a multiple of WIDTH, or 0."""
    begin: Any
    """(B, the decoder's layers · S): with what a decoder begins; empty where nobody asks an encoder."""
