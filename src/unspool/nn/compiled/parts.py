"""Where the weights of a model lie, in a form that one compiled step can walk through.

Weights stay where they are, in the parameters' own memory or in a file that is mapped: a table of whole
numbers holds, for every layer and every part of it, formats (`nn.stored.formats`), addresses, sizes and the
bias's address. A part may be stacked of up to three matrices with formats of their own (queries, keys and
values); END is the number of outputs down to the end of one, FUNCTION the address of what multiplies it. 0 is
an address where nothing is. Behind the layers' rows comes the model's own: its embedding, last norm and head.
Behind that one, where the model is an encoder, is a row for each layer of the decoder: what makes keys and
values there.
"""

from __future__ import annotations

from typing import NamedTuple

# The parts of a layer, and of the model
ATTENTION_NORM, QKV, ATTENTION_OUT, ATTENTION_POST_NORM = 0, 1, 2, 3
FEED_FORWARD_NORM, UP, DOWN, FEED_FORWARD_POST_NORM = 4, 5, 6, 7
CROSS_NORM, CROSS_QUERY, CROSS_OUT, CROSS_POST_NORM = 8, 9, 10, 11
LAST_NORM, EMBED, HEAD, EMBED_NORM = 0, 1, 2, 3
SOURCE_KV = 0
PARTS = 12

# What is said of each: of up to three matrices that are stacked, one above another, and of all of them
FORMAT, WEIGHT, END, FUNCTION = 0, 1, 2, 3
PIECE, PIECES = 4, 3
OUTPUTS, INPUTS, BIAS = 12, 13, 14
FIELDS = 15


class Shape(NamedTuple):
    """Sizes and choices of a model, as numbers."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    inner_width: int
    vocab_size: int
    norm: int
    norm_eps: float
    norm_place: int
    activation: int
    rotary: bool
    embed_scale: float = 1.0
    crosses: bool = False
    """Layers look at a source between their own past and the feed-forward network."""


NORMS = {"rms": 0, "layer": 1}
PLACES = {"pre": 0, "post": 1, "both": 2}
ACTIVATIONS = {"swiglu": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 5}
RMS, LAYER = 0, 1
PRE, POST, BOTH = 0, 1, 2
SWIGLU, RELU, GELU, GELU_TANH, SILU = 0, 1, 2, 3, 5
